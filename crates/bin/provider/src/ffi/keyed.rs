//! Contexts of ciphers and MACs, whose key may be one of the keeper's by name.

use super::entry::Keyed;
use super::param::{Params, Requests};
use crate::cipher::Cipher;
use crate::failure::{Done, Failure, Reason};
use crate::given::{Given, KEY_NAME, named, no_name_beside_bytes};
use crate::home::Owner;
use crate::instance::Instance;
use crate::mac::Mac;
use crate::opaque::Opaque;
use core::ffi::CStr;
use core::ops::{Deref, DerefMut};
use std::ffi::CString;

/// A context of a cipher or MAC.
pub(super) struct Named<T: ?Sized> {
    context: Box<T>,
    /// The name of its key, if the key has one.
    name: Option<CString>,
}

impl<T: ?Sized> Deref for Named<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.context
    }
}

impl<T: ?Sized> DerefMut for Named<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.context
    }
}

impl<T: ?Sized> Named<T> {
    pub(super) fn new(context: Box<T>) -> Self {
        Named { context, name: None }
    }

    /// The key has been replaced by one without a name, or the context was to have one.
    pub(super) fn forget_name(&mut self) {
        self.name = None;
    }

    /// Takes the key that the parameters name, if they name one.
    pub(super) fn take_named(&mut self, params: Params<'_>, take: impl FnOnce(&mut T, Given<'_>) -> Done) -> Done {
        let Some(uri) = named(params)? else { return Ok(()) };
        self.name = None;
        take(&mut self.context, Given::Named(&uri))?;
        let name = if uri.version == 0 { uri.name.to_string() } else { uri.to_string() };
        self.name = Some(CString::new(name).map_err(|_| Reason::Internal)?);
        Ok(())
    }

    /// Takes an opaque key.
    pub(super) fn take_opaque(&mut self, key: &Opaque, take: impl FnOnce(&mut T, Given<'_>) -> Done) -> Done {
        self.name = None;
        key.give(|given| take(&mut self.context, given))?;
        self.name = key.id().map(CStr::to_owned);
        Ok(())
    }

    /// Answers with the name of the key.
    pub(super) fn tell_name(&self, asked: &mut Requests<'_>) -> Done {
        match &self.name {
            Some(name) => asked.answer(KEY_NAME, |p| p.text(name)),
            None => Ok(()),
        }
    }
}

impl Named<dyn Cipher> {
    /// Takes parameters.
    pub(super) fn set_all(&mut self, instance: &Instance, params: Params<'_>) -> Done {
        self.context.set(instance, params)?;
        self.take_named(params, |cipher, key| cipher.take_key(instance, key))
    }
}

impl Named<dyn Mac> {
    /// Takes parameters.
    pub(super) fn set_all(&mut self, instance: &Instance, params: Params<'_>) -> Done {
        if params.get(c"key").is_some() {
            no_name_beside_bytes(params)?;
            self.forget_name();
        }
        self.context.set(instance, params)?;
        self.take_named(params, |mac, key| mac.take_key(instance, key))
    }
}

impl Keyed for Named<dyn Cipher> {
    fn owner(&self) -> Option<Owner> {
        self.context.owner()
    }

    fn copy(&self) -> Result<Self, Failure> {
        Ok(Named { context: self.context.duplicate()?, name: self.name.clone() })
    }
}

impl Keyed for Named<dyn Mac> {
    fn owner(&self) -> Option<Owner> {
        self.context.owner()
    }

    fn copy(&self) -> Result<Self, Failure> {
        Ok(Named { context: self.context.duplicate()?, name: self.name.clone() })
    }
}
