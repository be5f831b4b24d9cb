//! A cipher as OpenSSL's interface sees it: a row of properties, and a context.

use super::pipes::PipeCalls;
use crate::failure::{Done, Failure};
use crate::ffi::{Call, Known, Params, Requests};
use crate::given::Given;
use crate::home::Owner;
use crate::instance::{AlgId, Instance};
use core::ffi::CStr;
use sealane_crypto::skcipher::Direction;

/// A cipher that is offered.
pub(crate) struct CipherRow {
    /// Its names and its object identifier, as the default provider has them.
    pub(crate) names: &'static CStr,
    /// OpenSSL's number of its mode (`EVP_CIPH_CBC_MODE`).
    pub(crate) mode: u32,
    /// Lengths in bytes.
    pub(crate) key_len: usize,
    pub(crate) iv_len: usize,
    pub(crate) block_len: usize,
    pub(crate) aead: bool,
    /// Whether the mode keeps the IV itself.
    pub(crate) custom_iv: bool,
    /// Whether ciphertext is stolen.
    pub(crate) cts: bool,
    /// Whether it has pipelines.
    pub(crate) pipes: bool,
    /// Whether its keys have a form, so that a context makes random ones.
    pub(crate) random_key: bool,
    /// The algorithm of the core.
    pub(crate) alg: AlgId,
    /// The parameters that a context gives and takes.
    pub(crate) gettable: &'static [Known],
    pub(crate) settable: &'static [Known],
    /// Makes a context.
    pub(crate) new: fn(&'static CipherRow) -> Box<dyn Cipher>,
}

/// `EVP_CIPH_ECB_MODE` and the others.
pub(crate) mod mode {
    pub(crate) const ECB: u32 = 1;
    pub(crate) const CBC: u32 = 2;
    pub(crate) const CTR: u32 = 5;
    pub(crate) const GCM: u32 = 6;
    pub(crate) const CCM: u32 = 7;
    pub(crate) const XTS: u32 = 0x1_0001;
    pub(crate) const STREAM: u32 = 0;
}

/// A context of a cipher. It does with each call what the default provider does.
pub(crate) trait Cipher: Send {
    /// Takes direction, key and IV; those that are missing stay.
    fn init(&mut self, instance: &Instance, dir: Direction, key: Option<&[u8]>, iv: Option<&[u8]>) -> Done;
    /// Takes a key for what follows, as [`Self::init`] does.
    fn take_key(&mut self, instance: &Instance, key: Given<'_>) -> Done;
    /// The usual case of [`Self::update`] without all that is seldom needed, so that short texts do not wait for it: takes text
    /// whose output is as long, and returns whether it has. If not, nothing has changed, and `update` is asked. The call comes
    /// by reference, because copies of it would take as long as a block of AES.
    fn quick(&mut self, _call: &mut Call<'_>) -> bool {
        false
    }
    /// Takes text (or associated data, where there is no output), and returns the bytes written.
    fn update(&mut self, instance: &Instance, call: Call<'_>) -> Result<usize, Failure>;
    /// Ends the text, and returns the bytes written.
    fn finish(&mut self, instance: &Instance, call: Call<'_>) -> Result<usize, Failure>;
    /// Takes text without padding and without keeping any of it back (`EVP_Cipher`), and returns its length.
    fn cipher(&mut self, instance: &Instance, call: Call<'_>) -> Result<usize, Failure>;
    /// Starts a message in each pipe of a pipeline, under its IV.
    fn start_pipes(
        &mut self,
        _instance: &Instance,
        _dir: Direction,
        _key: Option<&[u8]>,
        _ivs: &[Option<&[u8]>],
    ) -> Done {
        Err(Failure::SILENT)
    }
    /// Takes the text (or associated data, where there is no output) of each pipe; the output is as long.
    fn update_pipes(&mut self, _instance: &Instance, _calls: PipeCalls<'_>) -> Done {
        Err(Failure::SILENT)
    }
    /// Ends the message of each pipe.
    fn finish_pipes(&mut self, _instance: &Instance) -> Done {
        Err(Failure::SILENT)
    }
    /// Answers what is asked.
    fn get(&mut self, instance: &Instance, asked: &mut Requests<'_>) -> Done;
    /// Takes parameters.
    fn set(&mut self, instance: &Instance, params: Params<'_>) -> Done;
    /// The process of the key, if there is one.
    fn owner(&self) -> Option<Owner>;
    /// A second context that continues from here.
    fn duplicate(&self) -> Result<Box<dyn Cipher>, Failure>;
}
