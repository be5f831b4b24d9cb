//! AF_ALG: Linux and Sealane answer the same. The OpenSSL provider, over the same algorithms: so do OpenSSL and Sealane.

mod differential;
mod guarded;
mod keys;
mod nist;
mod probe;
mod programs;
mod provider;
mod provider_guarded;
mod provider_keys;
mod provider_symmetric;
mod session;
