//! Renders a snapshot as metrics in Prometheus' text format (version 0.0.4).
//!
//! The text is written without a client library, which would keep counters of its own beside those of the engines.

mod family;
pub mod http;
mod ipsec;
mod tcp_ao;

use family::Family;
use sealane_abi::admin::{Role, Snapshot};

/// All metrics of `snapshot`.
#[must_use]
pub fn render(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let out = &mut text;
    let role = match snapshot.role {
        Role::Run => "run",
        Role::Daemon => "daemon",
    };
    Family::new(out, "sealane_info", "gauge", "The version and the kind of the instance. The value is 1.")
        .sample(&[("version", &snapshot.release), ("role", role), ("program", &snapshot.program)], 1);
    Family::new(
        out,
        "sealane_start_time_seconds",
        "gauge",
        "The time at which the instance was started, in seconds since 1970.",
    )
    .sample(&[], snapshot.started_s);
    tcp_ao::render(out, &snapshot.namespaces);
    ipsec::render(out, &snapshot.ipsec);
    text
}

#[cfg(test)]
mod tests;
