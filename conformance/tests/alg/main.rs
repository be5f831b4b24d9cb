//! AF_ALG: Linux and Sealane answer the same.

mod differential;
mod nist;
mod probe;
mod programs;
