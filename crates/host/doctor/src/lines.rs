//! Lines of the texts that administrators write.

/// The lines of a text without blank ones and comments. A backslash at the end of a line continues it.
pub(crate) fn lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut begun = String::new();
    for line in text.lines() {
        // A comment between continued lines ends nothing (systemd.syntax(7)).
        if line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        if let Some(part) = line.strip_suffix('\\') {
            begun.push_str(part);
            begun.push(' ');
            continue;
        }
        begun.push_str(line);
        let whole = std::mem::take(&mut begun);
        if !whole.trim().is_empty() {
            lines.push(whole.trim().to_owned());
        }
    }
    if !begun.trim().is_empty() {
        lines.push(begun.trim().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn continued_lines_are_one() {
        assert_eq!(lines("a \\\n# no\n  b\n\n ; no\nc\r\n"), ["a    b", "c"]);
        assert_eq!(lines("a\\"), ["a"]);
        assert!(lines("\\\n\\\n").is_empty());
    }
}
