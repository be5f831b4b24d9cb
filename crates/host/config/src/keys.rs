//! Keys and key chains.

use super::secret::{self, KeyFiles, Secret};
use super::section::{At, Mistakes, Section, Span};
use super::time::{self, Window};

/// A key of a chain: an MKT of RFC 5925 with its windows of RFC 8177. Its secret is wiped on drop and never shown.
pub struct Key {
    /// The id in the chain: RFC 8177's key-id, by default the position in the chain, from 1.
    pub id: u64,
    /// The algorithm, by its Linux name.
    pub algorithm: String,
    /// The master key.
    pub secret: Secret,
    /// The KeyID of segments that we send with it.
    pub send_id: u8,
    /// The KeyID of segments that the peer sends with it.
    pub recv_id: u8,
    /// Length of the MAC in bytes.
    pub mac_len: u8,
    /// Whether TCP options other than TCP-AO are left out of the MAC.
    pub exclude_options: bool,
    /// The time in which it may be used for sending.
    pub send: Window,
    /// The time in which it is accepted, including the tolerance. Covers `send`.
    pub accept: Window,
}

/// The behaviour after the last key of a chain has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenExpired {
    /// Segments are neither sent nor accepted any more.
    #[default]
    Stop,
    /// The last key stays in use, with a warning.
    KeepLast,
}

/// Keys that succeed one another.
#[derive(Default)]
pub struct KeyChain {
    /// The name; for the keys of a single peer, the peer's name.
    pub name: String,
    /// A description for humans.
    pub description: String,
    /// The keys, in the order of the file.
    pub keys: Vec<Key>,
    /// The behaviour after the last key has expired.
    pub when_expired: WhenExpired,
}

/// The algorithms by their Linux names, or our names for drafts: length in bytes of the whole MAC, and of the MAC that
/// is sent by default. Those of the draft have 128 bits.
pub(super) const ALGORITHMS: [(&str, usize, u8); 23] = [
    ("hmac(md5)", 16, 12),
    ("hmac(sha1)", 20, 12),
    ("hmac(sha224)", 28, 12),
    ("hmac(sha256)", 32, 12),
    ("hmac(sha384)", 48, 12),
    ("hmac(sha512)", 64, 12),
    ("hmac(sha3-224)", 28, 12),
    ("hmac(sha3-256)", 32, 12),
    ("hmac(sha3-384)", 48, 12),
    ("hmac(sha3-512)", 64, 12),
    ("hmac(rmd160)", 20, 12),
    ("hmac(sm3)", 32, 12),
    ("hmac(streebog256)", 32, 12),
    ("hmac(streebog512)", 64, 12),
    ("hmac(wp512)", 64, 12),
    ("hmac(blake2b-160)", 20, 12),
    ("hmac(blake2b-256)", 32, 12),
    ("hmac(blake2b-384)", 48, 12),
    ("hmac(blake2b-512)", 64, 12),
    ("cmac(aes128)", 16, 12),
    ("cmac(aes)", 16, 12),
    ("hmac-sha256-128", 32, 16),
    ("kmac256-128", 16, 16),
];

/// Those that hash the secret as a message, where the others take it as the key of a MAC. A keeper does the latter only.
const HASH_THE_SECRET: [&str; 2] = ["hmac-sha256-128", "kmac256-128"];

/// Reads a chain's settings and keys. `name` is the chain's name.
pub(super) fn chain(
    section: &mut Section<'_>,
    name: String,
    files: &mut KeyFiles<'_>,
    mistakes: &mut Mistakes<'_>,
) -> KeyChain {
    let description = section.string("description", mistakes).map_or_else(String::new, |d| d.value.to_owned());
    let tolerance = section.value("accept-tolerance").and_then(|at| time::duration(&at, mistakes)).unwrap_or(0);
    let when_expired = section.string("when-expired", mistakes).map_or(WhenExpired::Stop, |at| match at.value {
        "stop" => WhenExpired::Stop,
        "keep-last" => WhenExpired::KeepLast,
        _ => {
            mistakes.at(&at.span, "'when-expired' is \"stop\" or \"keep-last\"");
            WhenExpired::Stop
        }
    });
    let mut keys: Vec<(Key, Span)> = Vec::new();
    for (place, mut key_section) in (1..).zip(section.sections("key", mistakes)) {
        let span = key_section.span.clone();
        if let Some(key) = key(&mut key_section, place, tolerance, files, mistakes) {
            keys.push((key, span));
        }
        key_section.finish(mistakes);
    }
    unambiguous(&keys, when_expired, mistakes);
    KeyChain { name, description, keys: keys.into_iter().map(|(k, _)| k).collect(), when_expired }
}

/// Two keys that are accepted at the same time must not share an id, because segments could not be attributed to one of
/// them. A key that `keep-last` may keep in use is accepted without limit.
fn unambiguous(keys: &[(Key, Span)], when_expired: WhenExpired, mistakes: &mut Mistakes<'_>) {
    for (i, (key, span)) in keys.iter().enumerate() {
        for (other, _) in &keys[..i] {
            if key.id == other.id {
                mistakes.at(span, format!("there is another key with id {} in this chain", key.id));
            }
            let same = match (key.send_id == other.send_id, key.recv_id == other.recv_id) {
                (true, _) => format!("send-id {}", key.send_id),
                (_, true) => format!("recv-id {}", key.recv_id),
                _ => continue,
            };
            if key.accept.overlaps(&other.accept) {
                let what = format!("{same} is also that of key {}, which is accepted at the same time", other.id);
                mistakes.at(span, what);
            } else if when_expired == WhenExpired::KeepLast {
                let what = format!("{same} is also that of key {}; with \"keep-last\" no id comes back", other.id);
                mistakes.at(span, what);
            }
        }
    }
}

/// Reads one key; `None` if it has mistakes that prevent its use.
pub(super) fn key(
    section: &mut Section<'_>,
    place: u64,
    tolerance_s: i64,
    files: &mut KeyFiles<'_>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Key> {
    let id = section.integer("id", 0..=i64::MAX, mistakes).map_or(place, |at| at.value);
    let send_id = required_id(section, "send-id", mistakes);
    let recv_id = required_id(section, "recv-id", mistakes);
    let algorithm = algorithm(section, mistakes);
    let mac_len = section.integer::<u8>("mac-len", 4..=16, mistakes);
    let include = section.boolean("include-tcp-options", mistakes).unwrap_or(true);
    let secret = secret::read(section, files, mistakes);
    let (send, accept) = windows(section, tolerance_s, mistakes);
    let (algorithm, digest_len, default_mac_len) = algorithm?;
    if matches!(secret, Some(Secret::Kept { .. })) && HASH_THE_SECRET.contains(&algorithm.as_str()) {
        let what = format!("{algorithm} hashes the secret as a message, for which the keeper gives none away");
        mistakes.at(&section.span, what);
    }
    if let Some(at) = mac_len.as_ref().filter(|at| usize::from(at.value) > digest_len) {
        mistakes.at(&at.span, format!("a MAC of {algorithm} has {digest_len} bytes at most"));
    }
    Some(Key {
        id,
        algorithm,
        secret: secret?,
        send_id: send_id?,
        recv_id: recv_id?,
        mac_len: mac_len.map_or(default_mac_len, |at| at.value),
        exclude_options: !include,
        send,
        accept,
    })
}

fn required_id(section: &mut Section<'_>, name: &'static str, mistakes: &mut Mistakes<'_>) -> Option<u8> {
    let given = section.value(name).is_some();
    let id = section.integer::<u8>(name, 0..=255, mistakes).map(|at| at.value);
    if !given {
        section.missing(name, mistakes);
    }
    id
}

fn algorithm(section: &mut Section<'_>, mistakes: &mut Mistakes<'_>) -> Option<(String, usize, u8)> {
    if section.value("algorithm").is_none() {
        section.missing("algorithm", mistakes);
        return None;
    }
    let At { value, span } = section.string("algorithm", mistakes)?;
    let found = ALGORITHMS.iter().find(|(name, ..)| *name == value);
    if found.is_none() {
        let names: Vec<&str> = ALGORITHMS.iter().map(|(name, ..)| *name).collect();
        mistakes.at(&span, format!("no such algorithm for TCP-AO; there are {}", names.join(", ")));
    }
    found.map(|&(name, len, mac_len)| (name.to_owned(), len, mac_len))
}

/// The times in which a key may be used for sending, and in which it is accepted.
fn windows(section: &mut Section<'_>, tolerance_s: i64, mistakes: &mut Mistakes<'_>) -> (Window, Window) {
    let both = window(section, "lifetime", mistakes);
    let send = window(section, "send-lifetime", mistakes);
    let accept = window(section, "accept-lifetime", mistakes);
    if let (Some(at), true) = (&both, send.is_some() || accept.is_some()) {
        mistakes.at(&at.span, "'lifetime' is for both directions: it leaves no place for send- or accept-lifetime");
    }
    let value = |at: &Option<At<Window>>| at.as_ref().map(|at| at.value);
    let send_window = value(&send).or(value(&both)).unwrap_or(Window::ALWAYS);
    let accept_window = value(&accept).or(value(&both)).or(value(&send)).unwrap_or(Window::ALWAYS).widened(tolerance_s);
    if !accept_window.covers(&send_window) {
        let span = accept.or(send).map_or_else(|| section.span.clone(), |at| at.span);
        mistakes.at(
            &span,
            format!("a key has to be accepted whenever it is sent with: sent {send_window}, accepted {accept_window}"),
        );
    }
    (send_window, accept_window)
}

/// Reads `{ start, end }` or `{ start, duration }`, each optional; `None` if the setting is missing.
fn window(section: &mut Section<'_>, name: &'static str, mistakes: &mut Mistakes<'_>) -> Option<At<Window>> {
    let mut inner = section.section(name, mistakes)?;
    let start = inner.value("start").and_then(|at| time::time(&at, mistakes));
    let end_at = inner.value("end");
    let end = end_at.as_ref().and_then(|at| time::time(at, mistakes));
    let duration_at = inner.value("duration");
    let duration = duration_at.as_ref().and_then(|at| time::duration(at, mistakes));
    let span = inner.span.clone();
    inner.finish(mistakes);
    let start_s = start.unwrap_or(i64::MIN);
    let end_s = match (end, duration) {
        (Some(_), Some(_)) => {
            mistakes.at(&span, format!("'{name}' has an end and a duration: one of them is enough"));
            return None;
        }
        (Some(end), None) => end,
        (None, Some(_)) if start.is_none() => {
            mistakes.at(&span, format!("'{name}' has a duration without a start"));
            return None;
        }
        (None, Some(duration)) => start_s.saturating_add(duration),
        (None, None) => i64::MAX,
    };
    if end_s <= start_s {
        mistakes.at(&span, format!("'{name}' ends before it begins"));
        return None;
    }
    Some(At { value: Window { start_s, end_s }, span })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn key(id: u8, send: Window, accept: Window) -> Key {
        Key {
            id: id.into(),
            algorithm: "hmac(sha1)".into(),
            secret: Secret::Bytes(vec![1].into()),
            send_id: id,
            recv_id: id,
            mac_len: 12,
            exclude_options: false,
            send,
            accept,
        }
    }

    pub(crate) fn chain(keys: Vec<Key>) -> KeyChain {
        KeyChain { keys, ..KeyChain::default() }
    }
}
