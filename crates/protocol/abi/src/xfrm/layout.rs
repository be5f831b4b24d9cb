//! The shape of every structure of a fixed layout.

/// Declares fixed structures: public fields, all bytes accounted for, the size that the kernel has.
macro_rules! fixed_layout {
    ($($(#[$doc:meta])* pub struct $name:ident($size:literal) { $($(#[$fdoc:meta])* pub $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
        #[repr(C)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}
pub(super) use fixed_layout;
