//! The version of messages, and their bounds, in bytes unless they say otherwise.

use crate::key::{MAX_ALGORITHM_LEN, MAX_NAME_LEN, MAX_SECRET_LEN};

/// The version of messages.
pub const VERSION: u8 = 1;
/// The longest text of an operation by a key's name.
pub const MAX_TEXT_LEN: usize = 64 * 1024;
/// The longest associated data of an operation by a key's name.
pub const MAX_AAD_LEN: usize = 4096;
/// The longest text of an operation by reference, with its associated data. It has room for what an AF_ALG socket holds as Linux
/// makes it, 208 KiB.
pub const MAX_LONG_TEXT_LEN: usize = 256 * 1024;
/// The longest message: a text by reference, and what is around it.
pub const MAX_MESSAGE_LEN: usize = MAX_LONG_TEXT_LEN + 8 * 1024;
/// The most keys in one reply: at most 2 KiB each.
pub const MAX_PAGE: usize = 32;
/// The longest wrapped key: its header, a secret and the name of its algorithm with what is around them, and a tag.
pub const MAX_WRAPPED_LEN: usize = 64 + MAX_SECRET_LEN + MAX_ALGORITHM_LEN;
/// The longest reference to a key, encoded.
pub const MAX_REF_LEN: usize = 64 + MAX_WRAPPED_LEN;
/// The slots of shared memory that a client gets.
pub const SLOTS: usize = 1;
/// The length of a slot: longer messages go over the socket. A client takes no slot of another length, so that this has to be another
/// one whenever the layout of a slot changes, or what is agreed on about it.
pub const SLOT_LEN: usize = 84 * 1024;
/// The place in a slot of the texts of a request, behind all that is around them.
pub const TEXTS_AT: usize = 8 * 1024;
/// The most bytes of the texts of a request in a slot.
pub const MAX_TEXTS_LEN: usize = SLOT_LEN - TEXTS_AT;
/// The part of a long text in a slot that is computed at a time. With shorter ones the two sides tell each other too often how far they
/// are, with longer ones both wait too long for the first and the last part.
pub const PART_LEN: usize = 8 * 1024;
/// The bytes of several texts that a keeper which is awake sees first: it reads what is around them while the others are written.
pub(crate) const FIRST_LEN: usize = 2 * 1024;
/// The most computations in a request.
pub const MAX_STEPS: usize = 32;
/// The packet by which a client tells the keeper, while it sleeps, of a request in a slot. It has no reply.
pub const BELL: [u8; 1] = [0];
/// The most messages in pieces that a keeper holds for one connection.
pub const MAX_STREAMS: usize = 16;

/// As long as OpenSSL's default provider takes one of GCM.
pub(crate) const MAX_NONCE_LEN: usize = 128;
/// The longest IV of a cipher, such as Adiantum's.
pub const MAX_IV_LEN: usize = 32;
pub(crate) const MAX_TAG_LEN: usize = 64;
pub(crate) const MAX_REASON_LEN: usize = 1024;

// A named key's reference is shorter than a wrapped one.
const _: () = assert!(MAX_NAME_LEN + MAX_ALGORITHM_LEN + 32 < MAX_WRAPPED_LEN);
// A text, its reference, a nonce and a tag fit into a message.
const _: () = assert!(MAX_LONG_TEXT_LEN + MAX_REF_LEN + MAX_NONCE_LEN + MAX_TAG_LEN + 64 < MAX_MESSAGE_LEN);
