//! The macro that declares structures with a fixed layout.

/// Declares structures with public fields, no implicit padding, and the size that they have in the kernel.
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
