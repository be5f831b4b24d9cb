//! NEWSA and UPDSA (`xfrm_add_sa`): a state is made of what a request says, then added or put in the place of another.

use crate::namespace::Xfrm;
use crate::replay::{Replay, Sequence};
use crate::reply::{RequestContext, plain};
use crate::serial::Serial;
use crate::spi::AcquireQuery;
use crate::state::{Km, State};
use crate::{convert, iptfs, partial, rates, verify};
use sealane_abi::Errno;
use sealane_abi::cryptouser::name_field;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{
    self as abi, AF_INET6, AlgoAuth, Attributes, EncapTmpl, IPPROTO_AH, IPPROTO_COMP, IPPROTO_ESP, LifetimeCur, Mark,
    Reason, Stats, TCP_ENCAP_ESPINTCP, UDP_ENCAP_ESPINUDP, UsersaInfo, XFRM_MODE_BEET, XFRM_MODE_IPTFS,
    XFRM_MODE_ROUTEOPTIMIZATION, XFRM_MODE_TRANSPORT, XFRM_MODE_TUNNEL, XFRM_SA_DIR_OUT, XFRM_STATE_AF_UNSPEC,
    XFRM_STATE_ESN, XFRMNLGRP_SA,
};
use sealane_crypto::Kind;
use sealane_net_ipsec::iptfs::Config;
use sealane_net_ipsec::lifetime::Limits;
use sealane_net_ipsec::sa::{Proto, SaError, SaId, SaSpec, ipip_spi};
use sealane_net_ipsec::transform::{Keyed, Transform, TransformError, TransformSpec, aead_name, auth_info, enc_name};

/// `IP_MAX_MTU`.
const IP_MAX_MTU: u32 = 0xffff;
/// The only compression there is.
const DEFLATE: &[u8] = b"deflate";
/// The cipher that does nothing.
const NULL: &str = "ecb(cipher_null)";

fn text(name: &[u8]) -> &str {
    core::str::from_utf8(name).unwrap_or("")
}

/// The mark that packets get (`xfrm_smark_init`).
pub(crate) fn set_mark(attrs: &Attributes<'_>) -> Result<Mark, Reject> {
    let mask = attrs.set_mark_mask()?.unwrap_or(u32::MAX);
    Ok(attrs.set_mark()?.map_or(Mark::default(), |v| Mark { v, m: mask }))
}

impl Xfrm {
    pub(crate) fn add_state(
        &mut self,
        info: &UsersaInfo,
        attrs: &Attributes<'_>,
        update: bool,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        let now_s = context.now.wall_s;
        verify::new_state(info, attrs)?;
        let (state, transform) = self.construct_state(info, attrs, now_s)?;
        let (offload, key) = (state.offload, state.device_key);
        // A state that is not added leaves its device again.
        let placed = self.place_state(state, transform, update, now_s);
        if placed.is_err() {
            self.release(offload, key);
        }
        if let Some(event) = placed? {
            context.notify(XFRMNLGRP_SA, &event);
        }
        Ok(())
    }

    /// Adds a state, or puts it in the place of another: the event.
    fn place_state(
        &mut self,
        state: State,
        transform: Transform,
        update: bool,
        now_s: u64,
    ) -> Result<Option<abi::XfrmMessage>, Reject> {
        if update {
            // The event repeats the request, even if the existing state takes over only a part of it.
            let located = self.locate(&state).ok_or(plain(Errno::ESRCH))?;
            return self.update_state(located, state, transform, now_s);
        }
        if self.locate(&state).is_some() {
            return Err(plain(Errno::EEXIST));
        }
        let acquiring = self.acquiring_for(&state);
        let serial = self.insert_state(state, transform, now_s)?;
        if let Some(old) = acquiring {
            self.remove_state(old);
        }
        Ok(self.states.get(serial).map(|state| self.new_sa_message(state)))
    }

    /// The state that has what names this one (`__xfrm_state_locate`).
    fn locate(&self, state: &State) -> Option<Serial> {
        let info = &state.info;
        self.states.find(state.mark.v & state.mark.m, &info.id.daddr, info.id.spi.get(), info.id.proto, info.family)
    }

    /// The state without keys that this one takes the place of (`xfrm_state_add`).
    fn acquiring_for(&self, state: &State) -> Option<Serial> {
        let info = &state.info;
        let by_seq =
            (info.seq != 0).then(|| self.acquiring_by_seq(state.mark.v & state.mark.m, info.seq, state.cpu)).flatten();
        let by_seq = by_seq.filter(|serial| {
            self.states.get(*serial).is_some_and(|found| {
                found.info.id.proto == info.id.proto
                    && convert::equal(&found.info.id.daddr, &info.id.daddr, info.family)
            })
        });
        let wanted = AcquireQuery { info: *info, mark: state.mark, if_id: state.if_id, cpu: state.cpu };
        by_seq.or_else(|| self.acquiring_between(&wanted))
    }

    /// Adds a state to both tables.
    pub(crate) fn insert_state(
        &mut self,
        mut state: State,
        transform: Transform,
        now_s: u64,
    ) -> Result<Serial, Reject> {
        self.check_partial_key(&state)?;
        state.mark.v &= state.mark.m;
        let cur = state.info.curlft;
        state.sa = self.add_to_packets(&mut state, transform)?;
        state.tunnel = self.attach_tunnel(&state, now_s);
        let (key, sa) = (state.device_key, state.sa);
        let (mut sequence, window) = (state.sequence.clone(), state.window_pkts());
        let serial = self.states.add(state, now_s);
        self.devices.placed(key, serial);
        if let Err(refusal) = self.lease_of_device(serial) {
            self.remove_state(serial);
            return Err(refusal);
        }
        if sa.is_some() {
            self.with_sad(serial, |sad, sa| {
                let limits_moved = cur.bytes != 0 || cur.packets != 0 || cur.use_time != 0;
                if limits_moved {
                    sad.set_usage(sa, &convert::usage(&cur), now_s);
                }
                sequence.resume(sad, sa, window);
            });
            if let Some(state) = self.states.get_mut(serial) {
                state.sequence = sequence;
            }
        }
        self.restart_events(serial);
        self.start_keepalive(serial, now_s);
        Ok(serial)
    }

    /// The association that packets use; `None` if they cannot go through the state.
    pub(crate) fn packets_spec(&mut self, state: &State, transform: Transform) -> Option<SaSpec> {
        let info = &state.info;
        let (proto, mode) = (convert::proto(info.id.proto)?, convert::mode(info.mode)?);
        let flags = convert::flags(info.flags, state.extra_flags);
        let (out_number, in_number) = state.sequence.numbers(flags.esn);
        let (src, dst) = (convert::ip(&info.saddr, info.family), convert::ip(&info.id.daddr, info.family));
        let spi = if proto == Proto::Ipip { ipip_spi(src) } else { info.id.spi.get() };
        Some(SaSpec {
            proto,
            mode,
            reqid: info.reqid,
            mark: convert::mark(state.mark),
            set_mark: convert::mark(state.set_mark),
            if_id: state.if_id,
            cpu: state.cpu,
            device: self.packet_owner(state.offload),
            selector: convert::selector(&info.sel),
            dir: convert::dir(state.dir),
            flags,
            encap: state.encap.map(convert::encap),
            tfc_pad: state.tfcpad,
            window_pkts: state.window_pkts(),
            out_number,
            in_number,
            iv_salt: self.random(),
            limits: convert::limits(&info.lft),
            mapping_maxage_s: state.mapping_maxage_s,
            iptfs: Config { rate: rates::of(&self.rates, state), ..state.iptfs.unwrap_or_default() },
            now_s: info.curlft.add_time,
            ..SaSpec::tunnel(spi, src, dst, transform)
        })
    }

    /// Adds what packets need of a state; `None` where they cannot go through it.
    fn add_to_packets(&mut self, state: &mut State, transform: Transform) -> Result<Option<SaId>, Reject> {
        let Some(mut spec) = self.packets_spec(state, transform) else { return Ok(None) };
        if spec.device.is_some() {
            // They are told of once, by who counts.
            spec.limits = Limits::NONE;
        }
        self.lease(state, &mut spec)?;
        let out_number = spec.out_number;
        let added = self.data.sad.add(spec);
        if added.is_err() {
            self.end_lease(state, Some(out_number));
        }
        match added {
            Ok(sa) => {
                self.data.sad.set_crypto_device(sa, self.crypto_of(state));
                Ok(Some(sa))
            }
            // Linux takes these, and no packet goes through them there either, or nobody uses them: see LIMITATIONS.md.
            Err(SaError::Mode | SaError::Transform) => Ok(None),
            Err(SaError::Exists) => Err(plain(Errno::EEXIST)),
            Err(_) => Err(plain(Errno::ENOMEM)),
        }
    }

    /// Puts a state in the place of another, or what may change of it (`xfrm_state_update`).
    fn update_state(
        &mut self,
        located: Serial,
        state: State,
        transform: Transform,
        now_s: u64,
    ) -> Result<Option<abi::XfrmMessage>, Reject> {
        let old = self.states.get(located).ok_or(plain(Errno::ESRCH))?;
        if old.km == Km::Acquiring {
            if state.dir != 0 && old.dir != state.dir {
                return Err(plain(Errno::ESRCH));
            }
            // A refusal leaves the SPI reserved.
            self.check_partial_key(&state)?;
            // Both cannot have the SPI at a time here: the old one goes first.
            self.remove_state(located);
            let serial = self.insert_state(state, transform, now_s)?;
            return Ok(self.states.get(serial).map(|state| self.upd_sa_message(state)));
        }
        if old.dir != state.dir {
            return Err(plain(Errno::ESRCH));
        }
        if old.encap.map(|e| e.encap_type) != state.encap.map(|e| e.encap_type) {
            return Err(plain(Errno::EINVAL));
        }
        partial::check_update(old, &state)?;
        let event = self.upd_sa_message(&state);
        let lft = state.info.lft;
        // The old state stays offloaded as it was; the new one leaves the device again.
        self.release(state.offload, state.device_key);
        self.states.change(located, now_s, |old| {
            old.encap = state.encap;
            if old.coaddr.is_some() && state.coaddr.is_some() {
                old.coaddr = state.coaddr;
            }
            old.info.lft = lft;
            old.dying = false;
            if state.set_mark.v | state.set_mark.m != 0 {
                old.set_mark = state.set_mark;
            }
            if state.if_id != 0 {
                old.if_id = state.if_id;
            }
        });
        self.with_sad(located, |sad, sa| {
            sad.set_limits(sa, convert::limits(&lft), now_s);
            if let Some(encap) = state.encap {
                sad.set_ports(sa, convert::encap(encap));
            }
            if state.set_mark.v | state.set_mark.m != 0 {
                sad.change_set_mark(sa, convert::mark(state.set_mark));
            }
            if state.if_id != 0 {
                sad.set_if_id(sa, state.if_id);
            }
        });
        self.follow_rates(located);
        Ok(Some(event))
    }

    /// Makes a state of what a request says (`xfrm_state_construct`), with what its packets are to be computed with.
    pub(crate) fn construct_state(
        &mut self,
        p: &UsersaInfo,
        attrs: &Attributes<'_>,
        now_s: u64,
    ) -> Result<(State, Transform), Reject> {
        let mut info = UsersaInfo {
            curlft: LifetimeCur { add_time: now_s, ..LifetimeCur::default() },
            stats: Stats::default(),
            replay_window: p.replay_window.min(32),
            ..*p
        };
        if info.sel.family == 0 && info.flags & XFRM_STATE_AF_UNSPEC == 0 {
            info.sel.family = info.family;
        }
        let mut state = State::new(info, Km::Valid);
        state.encap = attrs.encap()?.map(|encap| EncapTmpl { pad: [0; 2], ..encap });
        state.coaddr = attrs.coaddr()?;
        state.extra_flags = attrs.sa_extra_flags()?.unwrap_or(0);
        self.attach(&mut state, attrs)?;
        state.tfcpad = attrs.tfcpad()?.unwrap_or(0);
        if state.tfcpad > IP_MAX_MTU {
            return Err(Reason::TfcExcessive.into());
        }
        state.mark = attrs.mark()?.unwrap_or_default();
        state.set_mark = set_mark(attrs)?;
        state.if_id = attrs.if_id()?.unwrap_or(0);
        state.dir = attrs.sa_dir()?.unwrap_or(0);
        state.keepalive_s = attrs.nat_keepalive_interval()?.unwrap_or(0);
        state.cpu = attrs.sa_pcpu()?;
        if state.cpu.is_some_and(|cpu| cpu >= self.cpus) {
            return Err(Reason::Pcpu.into());
        }
        let transform = self.init_state(&state)?;
        if let Some(mut esn) = attrs.replay_esn_val()? {
            // The bitmap may be left out.
            esn.bmp.resize(esn.bmp_len as usize, 0);
            if esn.replay_window > esn.bmp_len * 32 {
                return Err(Reason::ReplayBitmap.into());
            }
            if info.flags & XFRM_STATE_ESN != 0 && esn.replay_window == 0 && state.dir != XFRM_SA_DIR_OUT {
                return Err(Reason::ReplayWindow.into());
            }
            state.sequence = Sequence::of(Replay::Esn(esn));
        }
        if let (Some(replay), Replay::Legacy(_)) = (attrs.replay_val()?, state.sequence.said()) {
            state.sequence = Sequence::of(Replay::Legacy(replay));
        }
        if let Some(cur) = attrs.ltime_val()? {
            state.info.curlft = cur;
        }
        state.replay_ticks = attrs.etimer_thresh()?.unwrap_or(self.aevents.ticks);
        state.replay_thresh = attrs.replay_thresh()?.unwrap_or(self.aevents.thresh);
        state.mapping_maxage_s = attrs.mtimer_thresh()?.unwrap_or(0);
        state.iptfs = iptfs::config(&state, &transform, attrs)?;
        if let Some(offload) = attrs.offload_dev()? {
            let keys = transform.clone();
            self.offload_state(&mut state, &offload, |xfrm, state| {
                let mut spec = xfrm.packets_spec(state, keys)?;
                xfrm.lease_later(&mut spec);
                Some(spec)
            })?;
        }
        Ok((state, transform))
    }

    /// The algorithms, by the names that the kernel knows them by (`attach_aead` and the like).
    pub(crate) fn attach(&mut self, state: &mut State, attrs: &Attributes<'_>) -> Result<(), Reject> {
        if let Some(mut aead) = attrs.alg_aead()? {
            let name = aead_name(text(aead.name()), aead.alg_icv_len);
            let name = name.filter(|name| self.transforms.offers(Kind::Aead, name)).ok_or(Reason::AeadUnknown)?;
            aead.alg_name = name_field(name);
            state.aead = Some(aead);
        }
        if let Some(auth) = attrs.alg_auth_trunc()?
            && let Some(mac) = partial::info(&auth)
        {
            state.auth = Some(self.attach_partial(mac, auth)?);
        } else if let Some(mut auth) = attrs.alg_auth_trunc()? {
            let row = auth_info(text(auth.name())).filter(|row| self.transforms.offers(Kind::Hash, row.name));
            let row = row.ok_or_else(|| self.no_auth(text(auth.name()), Reason::AuthTruncUnknown))?;
            if auth.alg_trunc_len > row.full_bits {
                return Err(Reason::TruncLength.into());
            }
            auth.alg_name = name_field(row.name);
            if auth.alg_trunc_len == 0 {
                auth.alg_trunc_len = row.icv_bits;
            }
            state.auth = Some(auth);
        } else if let Some(auth) = attrs.alg_auth()? {
            let row = auth_info(text(auth.name())).filter(|row| self.transforms.offers(Kind::Hash, row.name));
            let row = row.ok_or_else(|| self.no_auth(text(auth.name()), Reason::AuthUnknown))?;
            state.auth = Some(AlgoAuth {
                alg_name: name_field(row.name),
                alg_key_len: auth.alg_key_len,
                alg_trunc_len: row.icv_bits,
                alg_key: auth.alg_key,
            });
        }
        if let Some(mut crypt) = attrs.alg_crypt()? {
            let name = enc_name(text(crypt.name()));
            let name = name.filter(|name| *name == NULL || self.transforms.offers(Kind::Skcipher, name));
            crypt.alg_name = name_field(name.ok_or(Reason::CryptUnknown)?);
            state.crypt = Some(crypt);
        }
        state.comp = attrs.alg_comp()?;
        if state.comp.as_ref().is_some_and(|comp| comp.name() != DEFLATE) {
            return Err(Reason::CompUnknown.into());
        }
        Ok(())
    }

    /// The reason to refuse a name that is no MAC for packets: `unknown`, unless the crypto core has it for other uses.
    fn no_auth(&self, name: &str, unknown: Reason) -> Reason {
        if self.transforms.has_mac(name) && auth_info(name).is_none() { Reason::AuthUnsound } else { unknown }
    }

    /// Initialises a state for its protocol (`__xfrm_init_state`).
    pub(crate) fn init_state(&mut self, state: &State) -> Result<Transform, Reject> {
        let info = &state.info;
        // Route optimisation is IPv6's.
        let inner = if info.sel.family == 0 { info.family } else { info.sel.family };
        let known = match info.mode {
            XFRM_MODE_TRANSPORT | XFRM_MODE_TUNNEL | XFRM_MODE_BEET | XFRM_MODE_IPTFS => true,
            mode => mode == XFRM_MODE_ROUTEOPTIMIZATION && inner == AF_INET6,
        };
        if !known {
            return Err(Reason::ModeUnknown.into());
        }
        if matches!(info.mode, XFRM_MODE_TRANSPORT | XFRM_MODE_ROUTEOPTIMIZATION) && inner != info.family {
            return Err(Reason::ModeFamilyChange.into());
        }
        self.check_partial(state)?;
        let transform = match info.id.proto {
            IPPROTO_ESP => self.init_esp(state)?,
            IPPROTO_AH => self.init_ah(state)?,
            IPPROTO_COMP => Self::init_comp(state)?,
            _ => return Err(Reason::TypeUnknown.into()),
        };
        if state.keepalive_s != 0 {
            if state.dir != XFRM_SA_DIR_OUT {
                return Err(Reason::KeepaliveDir.into());
            }
            if state.encap.is_none_or(|encap| encap.encap_type != UDP_ENCAP_ESPINUDP) {
                return Err(Reason::KeepaliveEncap.into());
            }
        }
        Ok(transform)
    }

    fn init_esp(&mut self, state: &State) -> Result<Transform, Reject> {
        let esn = state.info.flags & XFRM_STATE_ESN != 0;
        let made = match state {
            State { aead: Some(aead), .. } => {
                let keyed = Keyed { name: text(aead.name()), key: aead.alg_key.expose() };
                self.transforms.prepare(&TransformSpec::Aead { aead: keyed, icv_bits: aead.alg_icv_len }, esn)
            }
            State { crypt: Some(enc), auth: Some(auth), .. } => {
                let icv_bits = auth.alg_trunc_len;
                let auth = Keyed { name: text(auth.name()), key: auth.alg_key.expose() };
                let enc = Keyed { name: text(enc.name()), key: enc.alg_key.expose() };
                let spi = state.info.id.spi.get();
                let spec = match state.partial_mac() {
                    Some(_) => TransformSpec::Partial { enc, auth, icv_bits, spi },
                    None => TransformSpec::EncAuth { enc, auth, icv_bits },
                };
                self.transforms.prepare(&spec, esn)
            }
            // Linux would encrypt without integrity.
            State { crypt: Some(_), .. } => Err(TransformError::NullAuth),
            _ => return Err(Reason::EspAlg.into()),
        };
        let transform = made.map_err(|e| match e {
            // `esp_init_authenc` says nothing of a key that the ciphers refuse.
            TransformError::Key(_) if state.aead.is_none() => plain(Errno::EINVAL),
            // As where the kernel has no `digest_null`.
            TransformError::NullAuth => Reason::Crypto.with(Errno::ENOENT),
            _ => Reject::from(Reason::Crypto),
        })?;
        match state.encap {
            None | Some(EncapTmpl { encap_type: UDP_ENCAP_ESPINUDP | TCP_ENCAP_ESPINTCP, .. }) => Ok(transform),
            Some(_) => Err(Reason::EspEncap.into()),
        }
    }

    fn init_ah(&mut self, state: &State) -> Result<Transform, Reject> {
        let Some(auth) = &state.auth else { return Err(Reason::AhAuth.into()) };
        if state.encap.is_some() {
            return Err(Reason::AhEncap.into());
        }
        let keyed = Keyed { name: text(auth.name()), key: auth.alg_key.expose() };
        let made = self.transforms.prepare(&TransformSpec::Auth { auth: keyed, icv_bits: auth.alg_trunc_len }, false);
        made.map_err(|_| Reason::Crypto.into())
    }
}
