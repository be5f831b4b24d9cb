//! The keys that the daemon's configuration names of a keeper, and whether the keeper lets the daemon use them.

use sealane_config::Config;
use sealane_keeper_client::client::{ClientError, SOCKET};
use sealane_keeper_client::key::{Kind, Name};
use sealane_keeper_client::message::{Answer, Code, Operation};
use sealane_keeper_client::pool::{Manner, Pool};
use sealane_keeper_client::reference::KeyRef;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The longest time for all keys together; the keys after it count as answered.
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
    /// The keys that the daemon may not use, or that are not there.
    Lacks(Vec<LackingKey>),
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
            let pool = Pool::new(socket.clone(), Manner { patience: PATIENCE, ..Manner::default() });
            let until = Instant::now() + PATIENCE;
            asked(keys.into_iter().take_while(|_| Instant::now() < until), |operation| pool.ask(operation))
        } else {
            Seen::OtherUser
        };
        Some(Keeper { socket: socket.display().to_string(), seen })
    }
}

/// The answers about these keys: their names, versions and algorithms.
fn asked<'k>(
    keys: impl Iterator<Item = (&'k str, u32, &'k str)>,
    mut ask: impl FnMut(Operation) -> Result<Answer, ClientError>,
) -> Seen {
    let mut lacks: Vec<LackingKey> = Vec::new();
    for (name, version, algorithm) in keys {
        // The configuration has looked at it.
        let Some(of_keeper) = Name::new(name) else { continue };
        let (algorithm, secret_len) = mac_of(algorithm);
        let key = KeyRef::Named { name: of_keeper, version, algorithm: algorithm.to_owned() };
        let (is_unknown, why) = match ask(Operation::Try { key, kind: Kind::Hash, secret_len }) {
            Ok(_) => continue,
            Err(error @ ClientError::Io(..)) => return Seen::Silent(error.to_string()),
            Err(ClientError::Refused(refusal)) => (refusal.code == Code::NoKey, refusal.to_string()),
        };
        let lacking = LackingKey { name: name.to_owned(), algorithm: algorithm.to_owned(), is_unknown, why };
        if !lacks.contains(&lacking) {
            lacks.push(lacking);
        }
    }
    Seen::Lacks(lacks)
}

/// The MAC by which traffic keys of an algorithm of TCP-AO are derived, and the length that its key has to have; 0 is any.
fn mac_of(algorithm: &str) -> (&str, u32) {
    match algorithm {
        "cmac(aes128)" => ("cmac(aes)", 16),
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
        let keys = [("cut", 2, "cmac(aes128)"), ("good", 0, "hmac(sha1)"), ("gone", 0, "hmac(sha256)")];
        let mut seen = Vec::new();
        let answer = asked(keys.into_iter(), |operation| {
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
        });
        let asked = [("cut", 2, "cmac(aes)", 16), ("good", 0, "hmac(sha1)", 0), ("gone", 0, "hmac(sha256)", 0)];
        assert_eq!(seen, asked.map(|(name, version, mac, len)| (name.to_owned(), version, mac.to_owned(), len)));
        let Seen::Lacks(lacks) = answer else { panic!("{answer:?}") };
        assert_eq!(
            lacks.iter().map(|key| (key.name.as_str(), key.algorithm.as_str(), key.is_unknown)).collect::<Vec<_>>(),
            [("cut", "cmac(aes)", false), ("gone", "hmac(sha256)", true)]
        );
    }

    #[test]
    fn a_keeper_that_does_not_answer_is_asked_once() {
        let mut times = 0;
        let answer = asked([("a", 0, "hmac(sha1)"), ("b", 0, "hmac(sha1)")].into_iter(), |_| {
            times += 1;
            Err(ClientError::Io("/x".into(), std::io::ErrorKind::NotFound.into()))
        });
        assert!(matches!(&answer, Seen::Silent(why) if why.contains("/x")), "{answer:?}");
        assert_eq!(times, 1);
    }
}
