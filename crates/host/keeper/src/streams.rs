//! Messages in pieces that the keeper holds for one connection.

use sealane_crypto::OpError;
use sealane_crypto::aead::AeadStream;
use sealane_crypto::hash::HashState;
use sealane_keeper_client::key::{Name, Uses};
use sealane_keeper_client::limits::MAX_STREAMS;
use sealane_keeper_client::message::{Code, Refusal};
use std::collections::HashMap;

/// A message by its kind.
pub(crate) enum Message {
    Mac {
        state: Box<dyn HashState>,
        /// The length of its tag in bytes.
        digest_len: usize,
    },
    Aead {
        state: Box<dyn AeadStream>,
        /// The length of a tag that is not cut off, in bytes.
        whole_len: usize,
    },
}

/// A running message.
pub(crate) struct Running {
    pub(crate) message: Message,
    /// The key and its version, if it is one of the keeper's.
    pub(crate) key: Option<(Name, u32)>,
}

impl Running {
    /// The version of its key; 0 for a wrapped one.
    pub(crate) fn version(&self) -> u32 {
        self.key.as_ref().map_or(0, |(_, version)| *version)
    }

    /// The uses that a key needs for a second message like this one, beside those for its pieces.
    pub(crate) fn uses(&self) -> Uses {
        match self.message {
            Message::Mac { .. } => Uses::MAC,
            Message::Aead { .. } => Uses::default(),
        }
    }

    /// A second message that continues from here.
    ///
    /// # Errors
    /// [`OpError::Driver`] without memory.
    pub(crate) fn forked(&self) -> Result<Self, OpError> {
        let message = match &self.message {
            Message::Mac { state, digest_len } => Message::Mac { state: state.fork(), digest_len: *digest_len },
            Message::Aead { state, whole_len } => Message::Aead { state: state.fork()?, whole_len: *whole_len },
        };
        Ok(Running { message, key: self.key.clone() })
    }
}

/// The messages of one connection, by the client's numbers.
#[derive(Default)]
pub struct Streams(HashMap<u32, Running>);

impl Streams {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of a message's key.
    pub(crate) fn key(&self, stream: u32) -> Option<&Name> {
        self.0.get(&stream).and_then(|running| running.key.as_ref()).map(|(name, _)| name)
    }

    /// Whether another message can have this number.
    ///
    /// # Errors
    /// A refusal.
    pub(crate) fn check_free(&self, stream: u32) -> Result<(), Refusal> {
        if self.0.contains_key(&stream) {
            let text = format!("there is a message in pieces with number {stream}");
            return Err(Refusal { code: Code::Parameter, text });
        }
        if self.0.len() >= MAX_STREAMS {
            let text = format!("there are {MAX_STREAMS} messages in pieces of this connection");
            return Err(Refusal { code: Code::Full, text });
        }
        Ok(())
    }

    pub(crate) fn put(&mut self, stream: u32, running: Running) {
        self.0.insert(stream, running);
    }

    /// Keeps the messages under those of the keeper's keys, and versions, that `stays` names, and all under other keys.
    pub(crate) fn retain(&mut self, stays: impl Fn(&Name, u32) -> bool) {
        self.0.retain(|_, running| running.key.as_ref().is_none_or(|(name, version)| stays(name, *version)));
    }

    /// A message.
    ///
    /// # Errors
    /// A refusal.
    pub(crate) fn get(&self, stream: u32) -> Result<&Running, Refusal> {
        self.0.get(&stream).ok_or_else(|| missing(stream))
    }

    /// Takes a message out. One that cannot go on is not put back.
    ///
    /// # Errors
    /// A refusal.
    pub(crate) fn take(&mut self, stream: u32) -> Result<Running, Refusal> {
        self.0.remove(&stream).ok_or_else(|| missing(stream))
    }
}

fn missing(stream: u32) -> Refusal {
    Refusal { code: Code::Parameter, text: format!("there is no message in pieces with number {stream}") }
}
