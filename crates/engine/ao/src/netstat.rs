//! The counters of a network namespace in `/proc/net/netstat`.

use sealane_net_ao::drop::{Counter, Netstat};

/// The head of the two lines with TCP-AO's counters: names, then values.
const HEAD: &str = "TcpExt:";

/// The kernel's text with `counters` added to its own, which are 0 on a kernel without TCP-AO. Columns that an older
/// kernel lacks are appended. All other bytes stay as they are.
#[must_use]
pub fn render(text: &str, counters: &Netstat) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let is_head = line.starts_with(HEAD);
        match lines.clone().next() {
            Some(values) if is_head && values.starts_with(HEAD) => {
                lines.next();
                two_lines(&mut out, line, values, counters);
            }
            _ => out.push_str(line),
        }
    }
    out
}

fn two_lines(out: &mut String, names: &str, values: &str, counters: &Netstat) {
    let (names, names_end) = split_end(names);
    let (values, values_end) = split_end(values);
    let columns: Vec<&str> = names.split(' ').collect();
    let missing = || Counter::ALL.into_iter().filter(|c| !columns.contains(&c.name()));
    out.push_str(names);
    missing().for_each(|c| push(out, c.name()));
    out.push_str(names_end);
    for (i, value) in values.split(' ').enumerate() {
        let ours = Counter::ALL.into_iter().find(|c| columns.get(i) == Some(&c.name()));
        match (ours, value.parse::<u64>()) {
            (Some(counter), Ok(n)) => push(out, &n.wrapping_add(counters.value(counter)).to_string()),
            _ if i == 0 => out.push_str(value),
            _ => push(out, value),
        }
    }
    missing().for_each(|c| push(out, &counters.value(c).to_string()));
    out.push_str(values_end);
}

fn push(out: &mut String, word: &str) {
    out.push(' ');
    out.push_str(word);
}

/// A line without its end, and its end.
fn split_end(line: &str) -> (&str, &str) {
    line.split_at(line.trim_end_matches('\n').len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> Netstat {
        let mut stat = Netstat::default();
        stat.bump(Counter::Required);
        stat.bump(Counter::Good);
        stat.bump(Counter::Good);
        stat
    }

    #[test]
    fn columns_are_added_to() {
        let text = "TcpExt: TCPMD5Unexpected TCPAORequired TCPAOBad TCPAOKeyNotFound TCPAOGood TCPAODroppedIcmps B\n\
                    TcpExt: 7 0 0 0 40 0 9\nIpExt: X TCPAOGood\nIpExt: 1 2\n";
        let want = "TcpExt: TCPMD5Unexpected TCPAORequired TCPAOBad TCPAOKeyNotFound TCPAOGood TCPAODroppedIcmps B\n\
                    TcpExt: 7 1 0 0 42 0 9\nIpExt: X TCPAOGood\nIpExt: 1 2\n";
        assert_eq!(render(text, &counters()), want);
        assert_eq!(render(text, &Netstat::default()), text);
    }

    #[test]
    fn missing_columns_are_put_at_the_end() {
        let text = "TcpExt: A B\nTcpExt: -7 9\nMPTcpExt: C\nMPTcpExt: 1";
        let want = "TcpExt: A B TCPAORequired TCPAOBad TCPAOKeyNotFound TCPAOGood TCPAODroppedIcmps TCPMD5Unexpected\n\
                    TcpExt: -7 9 1 0 0 2 0 0\nMPTcpExt: C\nMPTcpExt: 1";
        assert_eq!(render(text, &counters()), want);
    }

    #[test]
    fn odd_texts_stay_as_they_are() {
        for text in ["", "\n", "TcpExt: A", "TcpExt: A\n", "IpExt: 1\nIpExt: 2", "TcpExt: A\nIpExt: 2\n"] {
            assert_eq!(render(text, &counters()), text);
        }
    }
}
