//! The variables about keys, as they were when the program began: it may change its environment, or lose it, afterwards.

use core::ffi::{CStr, c_char};
use sealane_abi::sealane::{KEEPER_VARIABLE, KEY_NAMES_VARIABLE, KEYS_VARIABLE, MAX_KEY_NAMES_LEN};
use std::sync::OnceLock;

/// A value. The library has no memory of its own yet when it is taken, and the program may write over its arguments later.
struct Value<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Value<N> {
    const NONE: Self = Value { bytes: [0; N], len: 0 };

    /// One that is too long is cut, and then has no meaning.
    fn set(&mut self, value: &[u8]) {
        self.len = value.len().min(N);
        self.bytes[..self.len].copy_from_slice(&value[..self.len]);
    }

    /// The text; none if it is absent or empty, or was too long.
    fn text(&self) -> Option<&str> {
        core::str::from_utf8(&self.bytes[..self.len]).ok().filter(|text| !text.is_empty() && text.len() < N)
    }
}

/// The variables.
pub(crate) struct Taken {
    keys: Value<32>,
    keeper: Value<256>,
    names: Value<{ MAX_KEY_NAMES_LEN + 1 }>,
}

impl Taken {
    /// # Safety
    /// An environment, or null.
    unsafe fn of(mut environment: *const *const c_char) -> Self {
        let mut taken = Taken { keys: Value::NONE, keeper: Value::NONE, names: Value::NONE };
        // SAFETY: as the caller says: pointers to C strings, and a null at the end.
        while let Some(entry) = unsafe { environment.as_ref() }.filter(|entry| !entry.is_null()) {
            // SAFETY: as above.
            let entry = unsafe { CStr::from_ptr(*entry) }.to_bytes();
            let value_of = |name: &str| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=");
            if let Some(value) = value_of(KEYS_VARIABLE) {
                taken.keys.set(value);
            } else if let Some(value) = value_of(KEEPER_VARIABLE) {
                taken.keeper.set(value);
            } else if let Some(value) = value_of(KEY_NAMES_VARIABLE) {
                taken.names.set(value);
            }
            // SAFETY: not behind the null.
            environment = unsafe { environment.add(1) };
        }
        taken
    }

    /// The place of keys. A value without a meaning is one, too: the empty text stands for it.
    pub(crate) fn keys(&self) -> Option<&str> {
        (self.keys.len > 0).then(|| self.keys.text().unwrap_or_default())
    }

    /// The socket of the keeper.
    pub(crate) fn keeper(&self) -> Option<&str> {
        self.keeper.text()
    }

    /// Whether a key may be given by this name.
    pub(crate) fn admits(&self, name: &str) -> bool {
        self.names.text().is_some_and(|names| names.split(',').any(|admitted| admitted == name))
    }
}

static TAKEN: OnceLock<Taken> = OnceLock::new();

/// Takes the variables from an environment, unless that has been done.
///
/// # Safety
/// As for [`Taken::of`].
pub(crate) unsafe fn take(environment: *const *const c_char) {
    // SAFETY: the caller's promise.
    TAKEN.get_or_init(|| unsafe { Taken::of(environment) });
}

/// The variables as they were when the program began.
pub(crate) fn taken() -> &'static Taken {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // A constructor of another library may come before ours.
    // SAFETY: libc's variable; nothing of the program but constructors has run.
    TAKEN.get_or_init(|| unsafe { Taken::of(environ) })
}
