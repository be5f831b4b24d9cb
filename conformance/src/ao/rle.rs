//! Bytes as text, with long runs by their length: `0a1b(ee*300)02`.

/// The least length of a run that is written by its length.
const RUN: usize = 4;

/// Writes bytes.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::new();
    for run in bytes.chunk_by(|a, b| a == b) {
        if run.len() < RUN {
            run.iter().for_each(|b| out += &format!("{b:02x}"));
        } else {
            out += &format!("({:02x}*{})", run[0], run.len());
        }
    }
    out
}

/// Reads bytes back; `None` for a text that [`encode`] does not write.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(run) = rest.strip_prefix('(') {
            let (run, behind) = run.split_once(')')?;
            let (byte, len) = run.split_once('*')?;
            let len: usize = len.parse().ok().filter(|n| *n < 1 << 20)?;
            out.resize(out.len() + len, u8::from_str_radix(byte, 16).ok()?);
            rest = behind;
        } else {
            out.push(u8::from_str_radix(rest.get(..2)?, 16).ok()?);
            rest = &rest[2..];
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let bytes = [&[1, 2, 2, 2][..], &[7; 300], &[0; 3], &[9; 4]].concat();
        let text = encode(&bytes);
        assert_eq!(text, "01020202(07*300)000000(09*4)");
        assert_eq!(decode(&text), Some(bytes));
        for bad in ["0", "(00*", "(00*x)", "xx", "(0000)"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
