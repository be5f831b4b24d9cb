//! What is to be known of the machine to judge figures.
