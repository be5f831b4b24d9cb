//! A value in guarded memory.

use crate::memory::{Memory, NoRoom};
use crate::process::{self, Opened};
use crate::wipe::wipe;
use core::alloc::Layout;
use core::any::{Any, TypeId};
use core::mem::{ManuallyDrop, transmute_copy};
use core::ops::Deref;
use core::ptr::{self, NonNull};

/// A value that lies in guarded memory where that has been established, and in a box where not. It is wiped after it was dropped.
///
/// Memory that the value has pointers to stays where it is. In guarded memory it can be used while that is open ([`process::open`]): closed, an
/// access ends the process (SIGSEGV). In a child of fork it cannot be used at all.
pub struct Held<T: ?Sized> {
    at: NonNull<T>,
    memory: Option<&'static Memory>,
}

// SAFETY: it owns the value.
unsafe impl<T: ?Sized + Send> Send for Held<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for Held<T> {}

impl<T: ?Sized> Held<T> {
    /// Moves a value to guarded memory, and wipes where it was; without guarded memory it stays in its box.
    ///
    /// # Errors
    /// [`NoRoom`]; the value is dropped, and wiped.
    pub fn new(value: Box<T>) -> Result<Self, NoRoom> {
        Self::boxed(value).at_home()
    }

    /// A value in its box. It wipes the value, wherever it ends.
    fn boxed(value: Box<T>) -> Self {
        Held { at: NonNull::from(Box::leak(value)), memory: None }
    }

    /// A value in a box, moved to guarded memory where the process has it.
    fn at_home(self) -> Result<Self, NoRoom> {
        let layout = Layout::for_value(self.get());
        let memory = match process::for_key()? {
            Some(memory) if layout.size() > 0 => memory,
            // Nothing to hide.
            _ => return Ok(self),
        };
        let to = memory.take(layout).ok_or(NoRoom)?;
        let from = ManuallyDrop::new(self).at.as_ptr();
        let opening = memory.open();
        // SAFETY: both are valid for the layout, and apart. The value is moved: from now on its old place holds plain bytes, which go
        // back to the allocator, and nobody drops them.
        unsafe {
            ptr::copy_nonoverlapping(from.cast::<u8>(), to.as_ptr(), layout.size());
            wipe(from.cast(), layout.size());
            std::alloc::dealloc(from.cast(), layout);
        }
        opening.close();
        Ok(Held { at: moved(from, to), memory: Some(memory) })
    }

    /// Whether it lies in guarded memory.
    #[inline]
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether it can be used in this process: it was made here, not before a fork.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.memory.is_none_or(Memory::is_here)
    }

    /// Opens guarded memory, if the value lies there. `None`: it is not here.
    #[inline]
    pub fn open(&self) -> Option<Opened> {
        match self.memory {
            None => Some(Opened::NOTHING),
            Some(memory) => memory.is_here().then(|| Opened::of(memory)),
        }
    }

    /// The value, for a caller that has opened guarded memory.
    ///
    /// # Panics
    /// When it is not here.
    #[inline]
    #[must_use]
    pub fn get(&self) -> &T {
        assert!(self.is_here(), "{GONE}");
        // SAFETY: the value is ours, and its memory is in this process.
        unsafe { self.at.as_ref() }
    }

    /// The value, to be changed, for a caller that has opened guarded memory.
    ///
    /// # Panics
    /// When it is not here.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self) -> &mut T {
        assert!(self.is_here(), "{GONE}");
        // SAFETY: as above.
        unsafe { self.at.as_mut() }
    }

    /// The address of the value, which is not read.
    #[inline]
    #[must_use]
    pub fn address(&self) -> *const T {
        self.at.as_ptr()
    }
}

/// A value that is asked for by its type. The type is looked at when the value is made: a table of methods that is asked each time takes
/// as long as a block of AES.
pub struct Typed<T: ?Sized> {
    held: Held<T>,
    id: TypeId,
}

impl<T: ?Sized> Typed<T> {
    /// Moves a value to guarded memory, as [`Held::new`] does. `any` shows it as what it is.
    ///
    /// # Errors
    /// [`NoRoom`].
    ///
    /// # Panics
    /// When `any` shows something else.
    pub fn new(value: Box<T>, any: fn(&T) -> &(dyn Any + Send + Sync)) -> Result<Self, NoRoom> {
        let boxed = Held::boxed(value);
        let (value, shown) = (boxed.get(), any(boxed.get()));
        let is_same = ptr::addr_eq(value, shown) && Layout::for_value(value) == Layout::for_value(shown);
        assert!(is_same, "the value, and nothing else");
        let id = shown.type_id();
        Ok(Typed { held: boxed.at_home()?, id })
    }

    /// The value, if it is of this type, for a caller that has opened guarded memory.
    ///
    /// # Panics
    /// When it is not here.
    #[inline]
    #[must_use]
    pub fn get_as<K: 'static>(&self) -> Option<&K> {
        assert!(self.held.is_here(), "{GONE}");
        // SAFETY: the value is ours, and its memory is in this process. A value of this type is all that is at its address: `new` has seen
        // one there, of the same layout, and it is not given out to be changed. All threads may have references to it.
        (self.id == TypeId::of::<K>()).then(|| unsafe { self.held.at.cast::<K>().as_ref() })
    }
}

impl<T: ?Sized> Deref for Typed<T> {
    type Target = Held<T>;

    fn deref(&self) -> &Held<T> {
        &self.held
    }
}

const GONE: &str = "a key of the parent's memory is used in a child";

impl<T: ?Sized> Drop for Held<T> {
    fn drop(&mut self) {
        // A child has nothing to drop. What the value points to in ordinary memory is lost there.
        let Some(_open) = self.open() else { return };
        // SAFETY: the value is ours, here, and open. Its memory was taken for this layout: by `new`, or by whoever made the box.
        unsafe {
            let layout = Layout::for_value(self.at.as_ref());
            ptr::drop_in_place(self.at.as_ptr());
            match self.memory {
                Some(memory) => memory.give(self.at.cast(), layout),
                None if layout.size() > 0 => {
                    wipe(self.at.as_ptr().cast(), layout.size());
                    std::alloc::dealloc(self.at.as_ptr().cast(), layout);
                }
                None => {}
            }
        }
    }
}

/// A pointer with another address, and the same length or table of methods. Rust has no stable function for it; pointers to values
/// without a fixed size are an address and a word, in this order, which is asserted.
fn moved<T: ?Sized>(from: *mut T, to: NonNull<u8>) -> NonNull<T> {
    const WORD: usize = size_of::<usize>();
    const { assert!(size_of::<*mut T>() == WORD || size_of::<*mut T>() == 2 * WORD) };
    if size_of::<*mut T>() == WORD {
        // SAFETY: a pointer of one word is its address.
        return unsafe { transmute_copy::<*mut u8, NonNull<T>>(&to.as_ptr()) };
    }
    // SAFETY: a pointer of two words; a null address is no value of the result, and `to` is none.
    unsafe {
        let mut words: [*mut u8; 2] = transmute_copy(&from);
        assert_eq!(words[0], from.cast(), "the address is the first word");
        words[0] = to.as_ptr();
        transmute_copy::<[*mut u8; 2], NonNull<T>>(&ManuallyDrop::new(words))
    }
}
