//! A driver of any MAC of these modules.

use crate::row::{MODULE, PRIORITY};
use sealane_crypto::AlgInfo;
use sealane_crypto::error::{KeyError, OpError, Status};
use sealane_crypto::hash::HashState;
use sealane_crypto::key::{PreparedKey, as_prepared};
use sealane_crypto::mac::{MAX_TAG_LEN, MacDriver, MacOp};
use sealane_crypto::registry::{Driver, Row};
use sealane_guarded::Held;
use std::marker::PhantomData;
use std::sync::Arc;

/// A MAC, as the modules beside implement it; [`Adapter`] makes a driver of it. Keys and states are wiped on drop.
pub(super) trait Mac: 'static {
    /// The prepared key.
    type Key: Send + Sync + 'static;
    /// The state of a message.
    type Running: Clone + Send + Sync + 'static;

    fn prepare(key: &[u8]) -> Result<Self::Key, KeyError>;
    fn begin(key: &Self::Key) -> Self::Running;
    fn update(key: &Self::Key, running: &mut Self::Running, data: &[u8]);
    /// Writes the full tag to the front of `tag`.
    fn end(key: &Self::Key, running: Self::Running, tag: &mut [u8; MAX_TAG_LEN]);
}

struct Adapter<M>(PhantomData<fn() -> M>, usize);

/// A key that states share: the counter of its users is on the heap, the key where the process has its keys.
type SharedKey<M> = Arc<Held<<M as Mac>::Key>>;

struct MacState<M: Mac> {
    // Shared and not borrowed, because a state may outlive the transform that started it.
    key: SharedKey<M>,
    running: M::Running,
}

impl<M: Mac> HashState for MacState<M> {
    fn update(&mut self, data: &[u8]) {
        M::update(self.key.get(), &mut self.running, data);
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        let mut tag = [0; MAX_TAG_LEN];
        let key = self.key.get();
        M::end(key, std::mem::replace(&mut self.running, M::begin(key)), &mut tag);
        out.copy_from_slice(&tag[..out.len()]);
        Ok(())
    }

    fn reset(&mut self) {
        self.running = M::begin(self.key.get());
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(MacState::<M> { key: self.key.clone(), running: self.running.clone() })
    }
}

impl<M: Mac> MacDriver for Adapter<M> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        let key = Held::new(Box::new(M::prepare(key)?)).map_err(|_| KeyError::Driver)?;
        Ok(Box::new(Arc::new(key)))
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        let key: &SharedKey<M> = as_prepared(key);
        Box::new(MacState::<M> { key: key.clone(), running: M::begin(key.get()) })
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        for op in ops {
            if op.tag.len() > self.1 {
                op.status = Err(OpError::TagLen);
                continue;
            }
            let key = op.tfm.key::<SharedKey<M>>(slot).get();
            let mut running = M::begin(key);
            for piece in op.data {
                M::update(key, &mut running, piece);
            }
            let mut tag = [0; MAX_TAG_LEN];
            M::end(key, running, &mut tag);
            op.tag.copy_from_slice(&tag[..op.tag.len()]);
            op.status = Ok(());
        }
    }
}

/// A row for `M`. The driver's name is the algorithm's without parentheses, and the module's.
pub(super) fn row<M: Mac>(info: AlgInfo) -> Row {
    let driver = format!("{}-{MODULE}", info.name.replace('(', "-").replace(')', ""));
    let adapter = Adapter::<M>(PhantomData, info.digest_len);
    Row::new(info, &driver, MODULE, PRIORITY, Driver::Mac(Arc::new(adapter)))
}
