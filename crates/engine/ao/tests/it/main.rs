//! TCP-AO's engine from outside: socket options, and the segments between two namespaces.

mod flows;
mod sockopt;
