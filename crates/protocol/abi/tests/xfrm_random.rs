//! Random messages of NETLINK_XFRM: both readers restore what was written, and refuse broken messages.

use sealane_abi::cryptouser::name_field;
use sealane_abi::netlink::{self, Messages, NLM_F_REQUEST};
use sealane_abi::xfrm::*;
use zerocopy::FromBytes;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    fn fixed<T: FromBytes>(&mut self) -> T {
        T::read_from_bytes(&self.bytes(size_of::<T>())).unwrap()
    }

    /// A key and its length in bits, which need not be a multiple of 8.
    fn key(&mut self) -> (u32, Key) {
        let bits = self.below(600);
        (bits as u32, Key::new(&self.bytes(bits.div_ceil(8))))
    }

    fn attribute(&mut self) -> Attribute {
        let alg_name = name_field(["rfc4106(gcm(aes))", "", "hmac(sha256)"][self.below(3)]);
        let (alg_key_len, alg_key) = self.key();
        let number = self.next() as u32;
        match self.below(41) {
            0 => Attribute::AlgAuth(Algo { alg_name, alg_key_len, alg_key }),
            1 => Attribute::AlgCrypt(Algo { alg_name, alg_key_len, alg_key }),
            2 => Attribute::AlgComp(Algo { alg_name, alg_key_len, alg_key }),
            3 => Attribute::Encap(self.fixed()),
            4 => Attribute::Tmpl((0..=self.below(8)).map(|_| self.fixed()).collect()),
            5 => Attribute::Sa(self.fixed()),
            6 => Attribute::Policy(self.fixed()),
            7 => {
                let len = self.below(300);
                Attribute::SecCtx(SecCtx { exttype: 8, ctx_alg: 1, ctx_doi: 1, ctx: self.bytes(len) })
            }
            8 => Attribute::LtimeVal(self.fixed()),
            9 => Attribute::ReplayVal(self.fixed()),
            10 => Attribute::ReplayThresh(number),
            11 => Attribute::EtimerThresh(number),
            12 => Attribute::Srcaddr(self.fixed()),
            13 => Attribute::Coaddr(self.fixed()),
            14 => Attribute::Lastused(self.next()),
            15 => Attribute::PolicyType(self.fixed()),
            16 => Attribute::Migrate((0..=self.below(8)).map(|_| self.fixed()).collect()),
            17 => Attribute::AlgAead(AlgoAead { alg_name, alg_key_len, alg_icv_len: number, alg_key }),
            18 => Attribute::Kmaddress(self.fixed()),
            19 => Attribute::AlgAuthTrunc(AlgoAuth { alg_name, alg_key_len, alg_trunc_len: number, alg_key }),
            20 => Attribute::Mark(self.fixed()),
            21 => Attribute::Tfcpad(number),
            22 => {
                let words = self.below(129);
                let bmp = if self.below(4) == 0 { Vec::new() } else { (0..words).map(|_| self.fixed()).collect() };
                let [oseq, seq, oseq_hi, seq_hi, replay_window] = self.fixed();
                let bmp_len = words as u32;
                Attribute::ReplayEsnVal(ReplayStateEsn { bmp_len, oseq, seq, oseq_hi, seq_hi, replay_window, bmp })
            }
            23 => Attribute::SaExtraFlags(number),
            24 => Attribute::Proto(number as u8),
            25 => Attribute::AddressFilter(self.fixed()),
            26 => Attribute::Pad(()),
            27 => Attribute::OffloadDev(self.fixed()),
            28 => Attribute::SetMark(number),
            29 => Attribute::SetMarkMask(number),
            30 => Attribute::IfId(number),
            31 => Attribute::MtimerThresh(number),
            32 => Attribute::SaDir(1 + (number as u8 & 1)),
            33 => Attribute::NatKeepaliveInterval(number),
            34 => Attribute::SaPcpu(number),
            35 => Attribute::IptfsDropTime(number),
            36 => Attribute::IptfsReorderWindow(number as u16),
            37 => Attribute::IptfsDontFrag(()),
            38 => Attribute::IptfsInitDelay(number),
            39 => Attribute::IptfsMaxQsize(number),
            _ => Attribute::IptfsPktSize(number),
        }
    }

    fn body(&mut self) -> Body {
        match self.below(24) {
            0 => Body::NewSa(self.fixed()),
            1 => Body::DelSa(self.fixed()),
            2 => Body::GetSa(self.fixed()),
            3 => Body::NewPolicy(self.fixed()),
            4 => Body::DelPolicy(self.fixed()),
            5 => Body::GetPolicy(self.fixed()),
            6 => Body::AllocSpi(self.fixed()),
            7 => Body::Acquire(self.fixed()),
            8 => Body::Expire(self.fixed()),
            9 => Body::UpdPolicy(self.fixed()),
            10 => Body::UpdSa(self.fixed()),
            11 => Body::PolExpire(self.fixed()),
            12 => Body::FlushSa(self.fixed()),
            13 => Body::FlushPolicy,
            14 => Body::NewAe(self.fixed()),
            15 => Body::GetAe(self.fixed()),
            16 => Body::Report(self.fixed()),
            17 => Body::Migrate(self.fixed()),
            18 => Body::GetSadInfo(self.fixed()),
            19 => Body::GetSpdInfo(self.fixed()),
            20 => Body::Mapping(self.fixed()),
            21 => Body::SetDefault(self.fixed()),
            22 => Body::GetDefault(self.fixed()),
            _ => Body::MigrateState(self.fixed()),
        }
    }

    fn message(&mut self) -> XfrmMessage {
        let attrs = (0..self.below(6)).map(|_| self.attribute()).collect();
        match self.below(30) {
            0 => XfrmMessage::new(Body::NewSadInfo(self.fixed()))
                .with(Attribute::SadCnt(self.fixed()))
                .with(Attribute::SadHinfo(self.fixed())),
            1 => XfrmMessage::new(Body::NewSpdInfo(self.fixed()))
                .with(Attribute::SpdInfo(self.fixed()))
                .with(Attribute::SpdHinfo(self.fixed()))
                .with(Attribute::SpdIpv4Hthresh(self.fixed()))
                .with(Attribute::SpdIpv6Hthresh(self.fixed())),
            _ => XfrmMessage { body: self.body(), attrs },
        }
    }
}

fn only(bytes: &[u8]) -> netlink::Message<'_> {
    let mut all = Messages::new(bytes);
    let first = all.next().unwrap();
    assert!(all.next().is_none());
    first
}

#[test]
fn what_is_written_is_read_again() {
    let mut random = Random(4);
    for round in 0..20_000 {
        let message = random.message();
        let flags = if random.below(2) == 0 { NLM_F_REQUEST } else { 0 };
        let bytes = message.encode(flags, round, 9);
        assert_eq!(bytes.len(), message.encoded_len());
        let m = only(&bytes);
        assert_eq!((m.header.nlmsg_type, m.header.nlmsg_seq, m.header.nlmsg_pid), (message.body.type_(), round, 9));
        let again = XfrmMessage::decode(&m).unwrap_or_else(|e| panic!("{:?}: {e}", message.body));
        assert!(again == message, "{:?}", message.body);
    }
}

#[test]
fn the_kernels_reading_agrees() {
    let mut random = Random(5);
    let mut read = 0;
    for _ in 0..20_000 {
        let message = random.message();
        let bytes = message.encode(NLM_F_REQUEST, 1, 0);
        let Ok(request) = Request::decode(&only(&bytes)) else { continue };
        assert_eq!(request.body, message.body);
        if matches!(request.body, Body::NewSpdInfo(_)) {
            assert!(request.hthresh4.is_some() && request.hthresh6.is_some());
            continue;
        }
        read += 1;
        // The last one of each type.
        for attr in &message.attrs {
            let last = message.attrs.iter().rev().find(|a| a.type_() == attr.type_()).unwrap();
            let mut written = Vec::new();
            last.encode(&mut written);
            assert_eq!(request.attrs.raw(attr.type_()), Some(&written[4..4 + last.payload_len()]), "{}", attr.name());
            match last {
                Attribute::AlgAead(a) => assert!(request.attrs.alg_aead().unwrap().as_ref() == Some(a)),
                Attribute::AlgAuthTrunc(a) => assert!(request.attrs.alg_auth_trunc().unwrap().as_ref() == Some(a)),
                Attribute::AlgCrypt(a) => assert!(request.attrs.alg_crypt().unwrap().as_ref() == Some(a)),
                Attribute::ReplayEsnVal(r) => assert_eq!(request.attrs.replay_esn_val().unwrap().as_ref(), Some(r)),
                Attribute::SecCtx(c) => assert_eq!(request.attrs.sec_ctx().unwrap().as_ref(), Some(c)),
                Attribute::Tmpl(t) => assert_eq!(request.attrs.tmpl().unwrap().as_ref(), Some(t)),
                Attribute::Mark(m) => assert_eq!(request.attrs.mark().unwrap(), Some(*m)),
                _ => {}
            }
        }
    }
    assert!(read > 8_000, "{read}");
}

#[test]
fn broken_messages_are_refused_or_mean_something() {
    let mut random = Random(6);
    for _ in 0..4_000 {
        let message = random.message();
        let whole = message.encode(NLM_F_REQUEST, 1, 0).to_vec();
        let cut = 16 + random.below(whole.len() - 15);
        let mut short = whole[..cut].to_vec();
        short[..4].copy_from_slice(&(cut as u32).to_ne_bytes());
        let mut flipped = whole.clone();
        let at = 16 + random.below(whole.len() - 15);
        if let Some(byte) = flipped.get_mut(at) {
            *byte ^= 1 << random.below(8);
        }
        if cut < 16 + message.body.as_bytes().len() {
            assert!(XfrmMessage::decode(&only(&short)).is_err() && Request::decode(&only(&short)).is_err());
        }
        for bytes in [short, flipped] {
            let _ = Request::decode(&only(&bytes));
            let Ok(read) = XfrmMessage::decode(&only(&bytes)) else { continue };
            let again = read.encode(NLM_F_REQUEST, 1, 0);
            assert!(XfrmMessage::decode(&only(&again)).unwrap() == read);
        }
    }
}
