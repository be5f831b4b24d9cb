//! Transcripts: the output of `alg-sequence` cut into sequences, and the differences of two of them.

/// One sequence of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The number in its head line.
    pub number: u64,
    /// The lines, one for each call.
    pub lines: Vec<String>,
    /// Whether it has its end line; without it the program or its kernel died on the way.
    pub complete: bool,
}

impl Block {
    /// Takes the results of calls away whose lines have one of these words.
    pub(crate) fn forget_results(&mut self, calls: &[&str]) {
        for line in &mut self.lines {
            let at = line.find(" = ").filter(|at| line[..*at].split(' ').any(|word| calls.contains(&word)));
            line.truncate(at.map_or(line.len(), |at| at + " = ".len()));
        }
    }
}

/// Returns the head line of sequence `number`.
#[must_use]
pub fn head(number: u64) -> String {
    format!("# sequence {number}")
}

/// The line that ends a sequence.
pub const END: &str = "# end";

/// Cuts a transcript into sequences. Lines outside of them (messages of the guest) are dropped.
#[must_use]
pub fn parse(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("# sequence ").and_then(|n| n.parse().ok()) {
            blocks.push(Block { number, lines: Vec::new(), complete: false });
        } else if let Some(last) = blocks.last_mut()
            && !last.complete
        {
            if line == END {
                last.complete = true;
            } else {
                last.lines.push(line.to_owned());
            }
        }
    }
    blocks
}

/// Writes sequences so that [`parse`] reads them.
#[must_use]
pub fn text(blocks: &[Block]) -> String {
    let mut text = String::new();
    for block in blocks {
        let end = block.complete.then(|| END.to_owned());
        for line in [head(block.number)].iter().chain(&block.lines).chain(&end) {
            text += line;
            text.push('\n');
        }
    }
    text
}

/// Takes from the lines of sequences what is known of them: `known` returns for each line of a sequence how it begins.
///
/// # Panics
/// When a line begins otherwise.
#[must_use]
pub fn without_known(mut blocks: Vec<Block>, known: impl Fn(u64) -> Vec<String>) -> Vec<Block> {
    for block in &mut blocks {
        for (line, known) in block.lines.iter_mut().zip(known(block.number)) {
            *line = line.strip_prefix(&known).unwrap_or_else(|| panic!("not {known:?}: {line}")).to_owned();
        }
    }
    blocks
}

/// Adds what [`without_known`] has taken.
#[must_use]
pub fn with_known(mut blocks: Vec<Block>, known: impl Fn(u64) -> Vec<String>) -> Vec<Block> {
    for block in &mut blocks {
        block.lines.iter_mut().zip(known(block.number)).for_each(|(line, known)| line.insert_str(0, &known));
    }
    blocks
}

/// Returns the index of the first line that differs, or `None` when the blocks are equal.
#[must_use]
pub fn first_difference(a: &Block, b: &Block) -> Option<usize> {
    let n = a.lines.len().max(b.lines.len());
    (0..n).find(|&i| a.lines.get(i) != b.lines.get(i)).or((a.complete != b.complete).then_some(n))
}

/// Returns the kind of a difference: the call and both results, with `N` for numbers and `DATA` for bytes. Differences
/// of one kind are reported once.
#[must_use]
pub fn signature(a: &Block, b: &Block, at: usize) -> String {
    let call = |block: &Block| {
        let line = block.lines.get(at)?;
        let (call, result) = line.split_once(" = ")?;
        Some((call.split(' ').nth(1).unwrap_or(call).to_owned(), kind_of(result)))
    };
    match (call(a), call(b)) {
        (Some((what, x)), Some((_, y))) => format!("{what}: {x} | {y}"),
        (Some((what, x)), None) => format!("{what}: {x} | (nothing)"),
        (None, Some((what, y))) => format!("{what}: (nothing) | {y}"),
        (None, None) => "the end".to_owned(),
    }
}

fn kind_of(result: &str) -> String {
    let mut words = result.split(' ').map(|word| match word {
        _ if word.bytes().all(|b| b.is_ascii_digit()) => "N",
        _ if word.bytes().all(|b| b.is_ascii_hexdigit() || b == b'.') => "DATA",
        _ => word,
    });
    let mut out = words.next().unwrap_or_default().to_owned();
    for word in words {
        out += if word == "N" { " DATA" } else { " " };
        out += if word == "N" { "" } else { word };
    }
    out
}

/// Shows both transcripts of one sequence, with equal lines once.
#[must_use]
pub fn side_by_side(a: &Block, b: &Block, names: [&str; 2]) -> String {
    let mut out = String::new();
    for i in 0..a.lines.len().max(b.lines.len()) {
        match (a.lines.get(i), b.lines.get(i)) {
            (Some(x), Some(y)) if x == y => out += &format!("    {x}\n"),
            (x, y) => {
                for (name, line) in [(names[0], x), (names[1], y)] {
                    out += &format!("  > {name}: {}\n", line.map_or("(nothing: the program ended)", String::as_str));
                }
            }
        }
    }
    for (name, block) in [(names[0], a), (names[1], b)] {
        if !block.complete {
            out += &format!("  > {name}: the sequence did not end\n");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "noise\n# sequence 4\n0 a = 1\n1 b = 2\n# end\nnoise\n# sequence 5\n0 a = 1\n";

    #[test]
    fn forgets_results() {
        let mut block = parse(
            "# sequence 1\n0 recv:Splice s1 [3] = 3 00 = x\n1 in a child: recv:Splice s1 = 0\n2 recv:Recv s1 = 0\n",
        )
        .remove(0);
        block.forget_results(&["recv:Splice"]);
        assert_eq!(block.lines, ["0 recv:Splice s1 [3] = ", "1 in a child: recv:Splice s1 = ", "2 recv:Recv s1 = 0"]);
    }

    #[test]
    fn cuts_into_sequences() {
        let blocks = parse(TEXT);
        assert_eq!(blocks.len(), 2);
        assert_eq!((blocks[0].number, blocks[0].lines.len(), blocks[0].complete), (4, 2, true));
        assert_eq!((blocks[1].number, blocks[1].complete), (5, false));
    }

    #[test]
    fn what_is_known_is_taken_and_added() {
        let blocks = parse(TEXT);
        let known = |number| if number == 4 { vec!["0 a = ", "1 b = "] } else { vec!["0 a"] };
        let known = |number| known(number).into_iter().map(str::to_owned).collect();
        let taken = without_known(blocks.clone(), known);
        assert_eq!(text(&taken), "# sequence 4\n1\n2\n# end\n# sequence 5\n = 1\n");
        assert_eq!(with_known(parse(&text(&taken)), known), blocks);
    }

    #[test]
    fn finds_the_first_difference() {
        let a = &parse("# sequence 1\n0 x = 1\n1 y s0 = 2 beef\n# end\n")[0];
        let b = &parse("# sequence 1\n0 x = 1\n1 y s0 = -EINVAL\n# end\n")[0];
        let cut = &parse("# sequence 1\n0 x = 1\n1 y s0 = 2 beef\n")[0];
        assert_eq!(first_difference(a, a), None);
        assert_eq!(first_difference(a, b), Some(1));
        assert_eq!(first_difference(a, cut), Some(2));
        assert_eq!(signature(a, b, 1), "y: N DATA | -EINVAL");
    }
}
