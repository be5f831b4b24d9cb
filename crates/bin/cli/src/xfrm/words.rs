//! The words of a command, one after another.

use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::net::IpAddr;

/// What is left of a command.
pub(super) struct Words {
    list: Vec<String>,
    at: usize,
}

impl Words {
    pub(super) fn new(list: &[OsString]) -> Result<Self> {
        let text = |w: &OsString| w.clone().into_string().map_err(|w| anyhow::anyhow!("{}: not UTF-8", w.display()));
        Ok(Words { list: list.iter().map(text).collect::<Result<_>>()?, at: 0 })
    }

    /// The next word, if there is one.
    pub(super) fn next(&mut self) -> Option<String> {
        let word = self.list.get(self.at).cloned();
        self.at += usize::from(word.is_some());
        word
    }

    /// Puts the last word back.
    pub(super) fn back(&mut self) {
        self.at -= 1;
    }

    /// The next word, which stays where it is.
    pub(super) fn peek(&self) -> Option<&str> {
        self.list.get(self.at).map(String::as_str)
    }

    /// Takes the next word if it is this one.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let is = self.peek() == Some(word);
        self.at += usize::from(is);
        is
    }

    /// The word behind `what`.
    pub(super) fn after(&mut self, what: &str) -> Result<String> {
        self.next().with_context(|| format!("there is nothing after '{what}'"))
    }

    /// The number behind `what`, decimal or hexadecimal.
    pub(super) fn number<T: TryFrom<u64>>(&mut self, what: &str) -> Result<T> {
        let word = self.after(what)?;
        let number = number(&word).and_then(|n| T::try_from(n).ok());
        number.with_context(|| format!("'{word}' after '{what}' is no number that fits"))
    }

    /// The name behind `what`, as a number by this table.
    pub(super) fn named<T: Copy>(&mut self, what: &str, table: &[(&str, T)]) -> Result<T> {
        let word = self.after(what)?;
        let found = table.iter().find(|(name, _)| *name == word);
        found.map(|(_, value)| *value).with_context(|| {
            let names: Vec<&str> = table.iter().map(|(n, _)| *n).collect();
            format!("'{word}' after '{what}' is none of {}", names.join(", "))
        })
    }

    /// The address behind `what`.
    pub(super) fn address(&mut self, what: &str) -> Result<IpAddr> {
        let word = self.after(what)?;
        word.parse().with_context(|| format!("'{word}' after '{what}' is no address"))
    }

    /// The address and prefix length behind `what`.
    pub(super) fn prefix(&mut self, what: &str) -> Result<(IpAddr, u8)> {
        let word = self.after(what)?;
        let (address, len) = word.split_once('/').unzip();
        let ip: IpAddr =
            address.unwrap_or(&word).parse().with_context(|| format!("'{word}' after '{what}' is no prefix"))?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        match len.map_or(Some(most), |l| l.parse().ok()).filter(|l| *l <= most) {
            Some(len) => Ok((ip, len)),
            None => bail!("'{word}' after '{what}' has no prefix length of {most} or less"),
        }
    }

    /// Nothing is left, or it is said what.
    pub(super) fn end(&self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(word) => bail!("'{word}' is not understood here"),
        }
    }
}

/// A number, decimal, hexadecimal or octal, as strtoull reads it.
pub(super) fn number(word: &str) -> Option<u64> {
    if let Some(hex) = word.strip_prefix("0x") {
        u64::from_str_radix(hex, 16).ok()
    } else if word.len() > 1 && word.starts_with('0') {
        u64::from_str_radix(&word[1..], 8).ok()
    } else {
        word.parse().ok()
    }
}
