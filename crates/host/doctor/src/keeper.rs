//! The keys that the daemon's configuration names of a keeper, and whether the keeper lets the daemon use them.

use sealane_config::Config;
use sealane_keeper_client::client::{ClientError, SOCKET};
use sealane_keeper_client::key::{Kind, Name};
use sealane_keeper_client::message::{Answer, Code, Operation};
use sealane_keeper_client::pool::{Manner, Pool};
use sealane_keeper_client::reference::KeyRef;
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// The longest time for all keys together.
const PATIENCE: Duration = Duration::from_secs(2);

/// The keeper that the daemon's configuration names keys of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keeper {
    /// Its socket.
    pub socket: String,
    /// Its answer about these keys.
    pub seen: Seen,
}

/// The answer of a keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// It was not asked: it judges keys by the user who asks, and this one is not the daemon's.
    OtherUser,
    /// None came, for this reason.
    Silent(String),
    /// It came.
    Answers {
        /// The keys that the daemon may not use, or that are not there.
        lacks: Vec<LackingKey>,
        /// The number of keys for which there was no time.
        not_asked: usize,
    },
}

/// A key of the configuration that the keeper refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LackingKey {
    /// Its name.
    pub name: String,
    /// Its algorithm, as the keeper has it.
    pub algorithm: String,
    /// Whether the keeper knows no key of this name, or says so to this user.
    pub is_unknown: bool,
    /// The keeper's reason.
    pub why: String,
}

impl Keeper {
    /// Whether it is the one of the shipped unit.
    pub(crate) fn is_usual(&self) -> bool {
        self.socket == SOCKET
    }

    /// Asks it, as root. `None` if no key of the configuration is a keeper's.
    pub(crate) fn of(config: &Config, is_root: bool) -> Option<Self> {
        let keys = config.peers().iter().flat_map(|peer| &peer.chain.keys);
        let keys: BTreeSet<(&str, u32, &str)> = keys
            .filter_map(|key| {
                let (name, version) = key.secret.kept()?;
                Some((name, version.unwrap_or(0), key.algorithm.as_str()))
            })
            .collect();
        if keys.is_empty() {
            return None;
        }
        let socket = config.daemon.keeper.clone().unwrap_or_else(|| SOCKET.into());
        let seen = if is_root {
            // It connects when it is asked.
            let pool = Pool::new(socket.clone(), Manner::default());
            let until = Instant::now() + PATIENCE;
            asked(keys.into_iter(), || Instant::now() < until, |operation| pool.ask_until(operation, until))
        } else {
            Seen::OtherUser
        };
        Some(Keeper { socket: socket.display().to_string(), seen })
    }
}

/// The answers about these keys: their names, versions and algorithms. `has_time` says whether one more may be asked for.
fn asked<'k>(
    mut keys: impl ExactSizeIterator<Item = (&'k str, u32, &'k str)>,
    has_time: impl Fn() -> bool,
    mut ask: impl FnMut(Operation) -> Result<Answer, ClientError>,
) -> Seen {
    let mut lacks: Vec<LackingKey> = Vec::new();
    let mut has_answered = false;
    loop {
        let left = keys.len();
        if left > 0 && !has_time() {
            return Seen::Answers { lacks, not_asked: left };
        }
        let Some((name, version, algorithm)) = keys.next() else { return Seen::Answers { lacks, not_asked: 0 } };
        // The configuration has looked at it.
        let Some(of_keeper) = Name::new(name) else { continue };
        let (algorithm, secret_len) = mac_of(algorithm);
        let key = KeyRef::Named { name: of_keeper, version, algorithm: algorithm.to_owned() };
        let (is_unknown, why) = match ask(Operation::Try { key, kind: Kind::Hash, secret_len }) {
            Ok(_) => {
                has_answered = true;
                continue;
            }
            // The time has ended, which is all that is known of this key.
            Err(error) if is_late(&error) && has_answered => return Seen::Answers { lacks, not_asked: left },
            Err(ClientError::Refused(refusal)) if refusal.code != Code::Busy => {
                (refusal.code == Code::NoKey, refusal.to_string())
            }
            Err(error) => return Seen::Silent(error.to_string()),
        };
        has_answered = true;
        let lacking = LackingKey { name: name.to_owned(), algorithm: algorithm.to_owned(), is_unknown, why };
        if !lacks.contains(&lacking) {
            lacks.push(lacking);
        }
    }
}

/// Whether there was no answer in time. A keeper that is busy is asked again until then.
fn is_late(error: &ClientError) -> bool {
    match error {
        ClientError::Io(_, e) => e.kind() == io::ErrorKind::TimedOut,
        ClientError::Refused(refusal) => refusal.code == Code::Busy,
    }
}

/// The MAC by which traffic keys of an algorithm of TCP-AO are derived, and the length that its key has to have; 0 is any.
fn mac_of(algorithm: &str) -> (&str, u32) {
    match algorithm {
        // A configuration may have either name.
        "cmac(aes128)" | "cmac(aes)" => ("cmac(aes)", 16),
        other => (other, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_keeper_client::message::Refusal;

    fn refusal(code: Code) -> ClientError {
        ClientError::Refused(Refusal { code, text: String::new() })
    }

    #[test]
    fn each_key_is_asked_for_as_the_daemon_does() {
        let keys = [
            ("cut", 2, "cmac(aes128)"),
            ("good", 0, "hmac(sha1)"),
            ("gone", 0, "hmac(sha256)"),
            ("other", 0, "cmac(aes)"),
        ];
        let mut seen = Vec::new();
        let answer = asked(
            keys.into_iter(),
            || true,
            |operation| {
                let Operation::Try { key: KeyRef::Named { name, version, algorithm }, kind: Kind::Hash, secret_len } =
                    operation
                else {
                    panic!("another question")
                };
                let code = match name.as_str() {
                    "good" => None,
                    "gone" => Some(Code::NoKey),
                    _ => Some(Code::Denied),
                };
                seen.push((name.as_str().to_owned(), version, algorithm, secret_len));
                code.map_or(Ok(Answer::Version(1)), |code| Err(refusal(code)))
            },
        );
        let asked = [
            ("cut", 2, "cmac(aes)", 16),
            ("good", 0, "hmac(sha1)", 0),
            ("gone", 0, "hmac(sha256)", 0),
            ("other", 0, "cmac(aes)", 16),
        ];
        assert_eq!(seen, asked.map(|(name, version, mac, len)| (name.to_owned(), version, mac.to_owned(), len)));
        let Seen::Answers { lacks, not_asked: 0 } = answer else { panic!("{answer:?}") };
        assert_eq!(
            lacks.iter().map(|key| (key.name.as_str(), key.algorithm.as_str(), key.is_unknown)).collect::<Vec<_>>(),
            [("cut", "cmac(aes)", false), ("gone", "hmac(sha256)", true), ("other", "cmac(aes)", false)]
        );
    }

    const KEYS: [(&str, u32, &str); 3] = [("a", 0, "hmac(sha1)"), ("b", 0, "hmac(sha1)"), ("c", 0, "hmac(sha1)")];

    #[test]
    fn a_keeper_that_does_not_answer_is_asked_once() {
        let none = || ClientError::Io("/x".into(), io::ErrorKind::NotFound.into());
        // One that is busy has not looked at the key.
        for failed in [none, || refusal(Code::Busy)] {
            let (mut times, why) = (0, failed().to_string());
            let answer = asked(
                KEYS.into_iter(),
                || true,
                |_| {
                    times += 1;
                    Err(failed())
                },
            );
            assert_eq!((answer, times), (Seen::Silent(why), 1));
        }
    }

    #[test]
    fn keys_that_nobody_had_time_to_ask_for_are_told() {
        let times = std::cell::Cell::new(0);
        let answered = |of: usize, failed: fn() -> ClientError| {
            times.set(0);
            let ask = |_| {
                times.set(times.get() + 1);
                if times.get() <= of { Ok(Answer::Version(1)) } else { Err(failed()) }
            };
            asked(KEYS.into_iter(), || times.get() < 2, ask)
        };
        let not_asked = |not_asked| Seen::Answers { lacks: Vec::new(), not_asked };
        let late = || ClientError::Io("/x".into(), io::ErrorKind::TimedOut.into());
        // The time is over after two of the three, or in the middle of the second one.
        assert_eq!((answered(3, late), times.get()), (not_asked(1), 2));
        assert_eq!((answered(1, late), times.get()), (not_asked(2), 2));
        assert_eq!((answered(1, || refusal(Code::Busy)), times.get()), (not_asked(2), 2));
    }
}
