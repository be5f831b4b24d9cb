//! The macro by which functions of libc are interposed.

/// Interposes a libc function whose descriptor may be ours: `|here| result` when it is, libc's otherwise, `then` something that is
/// told its result.
///
/// `C-unwind`, because libc cancels threads by unwinding through us; nothing that needs dropping lives in the frame
/// then.
macro_rules! hook {
    ($(
        $(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty, $fd:ident |$h:ident| $body:expr
        $(, then |$result:ident| $after:expr)?;
    )+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            if $crate::table::ours($fd) {
                return $crate::entry::guarded(|| {
                    let handle = $crate::table::borrow($fd).ok_or(libc::EBADF)?;
                    // SAFETY: the program's own call.
                    let $h = &unsafe { $crate::program::LocalDescriptor::new($fd, &handle) };
                    $body
                }) as $ret;
            }
            let result = $crate::entry::real!($name($($arg: $ty),*) -> $ret);
            $(let $result = result; $after;)?
            result
        }
    )+};
}
pub(crate) use hook;
