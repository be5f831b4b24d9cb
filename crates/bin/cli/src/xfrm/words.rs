//! A parser of the arguments of a command.

use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::net::IpAddr;

/// The arguments of a command, and the position in them.
pub(super) struct Words {
    list: Vec<String>,
    at: usize,
}

impl Words {
    pub(super) fn new(list: &[OsString]) -> Result<Self> {
        let text =
            |w: &OsString| w.clone().into_string().map_err(|w| anyhow::anyhow!("'{}' is not UTF-8", w.display()));
        Ok(Words { list: list.iter().map(text).collect::<Result<_>>()?, at: 0 })
    }

    /// Whether the last argument is `-h` or `--help`, or `help` in place of an object or command.
    pub(super) fn asks_for_help(&self) -> bool {
        let last = self.list.last().map(String::as_str);
        matches!(last, Some("-h" | "--help")) || (self.list.len() <= 2 && last == Some("help"))
    }

    /// Consumes and returns the next argument.
    pub(super) fn next(&mut self) -> Option<String> {
        let word = self.list.get(self.at).cloned();
        self.at += usize::from(word.is_some());
        word
    }

    /// Goes back by one argument.
    pub(super) fn back(&mut self) {
        self.at -= 1;
    }

    /// The next argument, without consuming it.
    pub(super) fn peek(&self) -> Option<&str> {
        self.list.get(self.at).map(String::as_str)
    }

    /// Consumes the next argument if it is `word`.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let is = self.peek() == Some(word);
        self.at += usize::from(is);
        is
    }

    /// Consumes the value of the argument `what`.
    pub(super) fn after(&mut self, what: &str) -> Result<String> {
        self.next().with_context(|| format!("'{what}' needs a value"))
    }

    /// Consumes a number, the value of the argument `what`.
    pub(super) fn number<T: TryFrom<u64>>(&mut self, what: &str) -> Result<T> {
        let word = self.after(what)?;
        let number = number(&word).and_then(|n| T::try_from(n).ok());
        number.with_context(|| format!("'{word}' after '{what}' is not a number in its range"))
    }

    /// Consumes a name in `table`, the value of the argument `what`.
    pub(super) fn named<T: Copy>(&mut self, what: &str, table: &[(&str, T)]) -> Result<T> {
        let word = self.after(what)?;
        let found = table.iter().find(|(name, _)| *name == word);
        found.map(|(_, value)| *value).with_context(|| {
            let names: Vec<&str> = table.iter().map(|(n, _)| *n).collect();
            format!("unknown value '{word}' of '{what}', expected one of {}", names.join(", "))
        })
    }

    /// Consumes an address, the value of the argument `what`.
    pub(super) fn address(&mut self, what: &str) -> Result<IpAddr> {
        let word = self.after(what)?;
        word.parse().with_context(|| format!("'{word}' after '{what}' is not an address"))
    }

    /// Consumes an address with an optional prefix length, the value of the argument `what`.
    pub(super) fn prefix(&mut self, what: &str) -> Result<(IpAddr, u8)> {
        let word = self.after(what)?;
        let (address, len) = word.split_once('/').unzip();
        let ip: IpAddr = address
            .unwrap_or(&word)
            .parse()
            .with_context(|| format!("'{word}' after '{what}' is not an address or prefix"))?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        match len.map_or(Some(most), |l| l.parse().ok()).filter(|l| *l <= most) {
            Some(len) => Ok((ip, len)),
            None => bail!("'{word}' after '{what}' has no prefix length between 0 and {most}"),
        }
    }

    /// Checks that no arguments are left.
    pub(super) fn end(&self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(word) => Err(unexpected(word)),
        }
    }
}

/// The error for an argument that is not valid in its place.
pub(super) fn unexpected(word: &str) -> anyhow::Error {
    anyhow::anyhow!("unexpected argument '{word}'")
}

/// Parses a decimal, hexadecimal or octal number as strtoull does.
pub(super) fn number(word: &str) -> Option<u64> {
    if let Some(hex) = word.strip_prefix("0x") {
        u64::from_str_radix(hex, 16).ok()
    } else if word.len() > 1 && word.starts_with('0') {
        u64::from_str_radix(&word[1..], 8).ok()
    } else {
        word.parse().ok()
    }
}
