//! Renders a snapshot as metrics in Prometheus' text format (version 0.0.4).
//!
//! The text is written without a client library, which would keep counters of its own beside those of the engines.

mod family;
pub mod http;
mod ipsec;
mod tcp_ao;

use family::Family;
use sealane_abi::admin::{Health, Role, Snapshot, Tally};

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
    let Health { failures, transient_errors } = &snapshot.health;
    let mut tallies = |name, help, label, list: &[Tally]| {
        if !list.is_empty() {
            let mut family = Family::new(out, name, "counter", help);
            list.iter().for_each(|tally| family.sample(&[(label, &tally.name)], tally.count));
        }
    };
    tallies(
        "sealane_failures_total",
        "The number of times since the boot that everything was started again, because a thread panicked, ended with an \
         error, or hung.",
        "reason",
        failures,
    );
    tallies(
        "sealane_transient_errors_total",
        "Errors of the kernel that pass by themselves: what failed was tried again, or lost as if a queue had been full.",
        "errno",
        transient_errors,
    );
    tcp_ao::render(out, &snapshot.namespaces);
    ipsec::render(out, &snapshot.ipsec);
    text
}

#[cfg(test)]
mod tests;
