//! The rate that TCP would have (RFC 5348 section 3.1, RFC 9347 appendix B), in packets of one length.

/// The lowest loss event rate that is looked for.
const LEAST: f64 = 1e-9;

/// The part of an RTT from one packet to the next, at a loss event rate of at most 1. The time after which TCP sends again counts as
/// four RTTs, and one packet is acknowledged at a time.
fn spacing(loss_event_rate: f64) -> f64 {
    let p = loss_event_rate;
    (2.0 * p / 3.0).sqrt() + 12.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p)
}

/// Packets a second with this RTT in seconds, and with so many packets from one loss event to the next, at least 1.
#[must_use]
pub fn rate(rtt_s: f64, loss_interval: f64) -> f64 {
    1.0 / (rtt_s * spacing(1.0 / loss_interval))
}

/// The number of packets from one loss event to the next with which [`rate`] is this one (section 6.3.1).
#[must_use]
pub fn loss_interval(rtt_s: f64, rate: f64) -> f64 {
    let wanted = 1.0 / (rtt_s * rate);
    let (mut low, mut high) = (LEAST, 1.0);
    // By halves of the exponent: 64 are more than a float has digits.
    for _ in 0..64 {
        let middle = f64::sqrt(low * high);
        if spacing(middle) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    1.0 / high
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the equation, computed by hand.
    const VALUES: [(f64, f64); 5] = [
        (1.0, 0.004_109_882_118),
        (10.0, 1.770_102_077_791),
        (100.0, 11.233_223_436_299),
        (1000.0, 38.384_363_139_125),
        (10_000.0, 122.364_359_180_655),
    ];

    #[test]
    fn the_equation_has_its_values() {
        for (interval, pkts_per_rtt) in VALUES {
            for rtt_s in [0.001, 0.1, 2.0] {
                let found = rate(rtt_s, interval) * rtt_s;
                assert!((found / pkts_per_rtt - 1.0).abs() < 1e-9, "{interval}: {found}");
            }
        }
    }

    #[test]
    fn it_can_be_solved() {
        for (interval, pkts_per_rtt) in VALUES {
            let found = loss_interval(0.05, pkts_per_rtt / 0.05);
            assert!((found / interval - 1.0).abs() < 1e-6, "{interval}: {found}");
        }
        assert!(loss_interval(0.05, 1e-9) < 1.000_001, "less than each packet cannot be lost");
        assert!(loss_interval(0.05, 1e18) > 9e8, "more than can be looked for");
    }
}
