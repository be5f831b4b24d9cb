//! Messages of NETLINK_XFRM: no panic; a parsed message encodes to bytes that both parsers read as the same; every
//! refusal has an acknowledgement.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_abi::netlink::answer::{AckOptions, ack, done};
use sealane_abi::netlink::{Attrs, Messages, NLM_F_REQUEST, NLMSG_HDRLEN};
use sealane_abi::xfrm::{AF_INET, Address, Attributes, Body, Request, StateFilter, XfrmMessage};

/// Reads every attribute.
fn attributes(attrs: &Attributes<'_>) {
    macro_rules! ask {
        ($($getter:ident)*) => {$(
            if let Err(e) = attrs.$getter() {
                assert!(e.attr.is_some() && e.ack.text.is_some());
            }
        )*};
    }
    ask! {
        alg_auth alg_crypt alg_comp encap tmpl sa policy sec_ctx ltime_val replay_val replay_thresh etimer_thresh srcaddr coaddr
        lastused policy_type migrate alg_aead kmaddress alg_auth_trunc mark tfcpad replay_esn_val sa_extra_flags proto
        address_filter pad offload_dev set_mark set_mark_mask if_id mtimer_thresh sa_dir nat_keepalive_interval sa_pcpu
        iptfs_drop_time iptfs_reorder_window iptfs_dont_frag iptfs_init_delay iptfs_max_qsize iptfs_pkt_size
    }
    if let Ok(filter) = StateFilter::new(attrs) {
        let _ = filter.matches(50, AF_INET, &Address::ANY, &Address::ANY);
    }
}

fuzz_target!(|data: &[u8]| {
    for m in Messages::new(data) {
        let kernel = Request::decode(&m);
        match &kernel {
            Ok(request) => attributes(&request.attrs),
            Err(refused) => {
                for (cap, ext) in [(false, false), (false, true), (true, true)] {
                    let options = AckOptions { cap, ext };
                    let answer = ack(&m, 1, Err(refused.errno), options, &refused.ack);
                    let read = Messages::new(&answer).next().expect("an acknowledgement reads");
                    assert_eq!(read.bytes.len(), answer.len());
                    let end = done(1, 1, 0, Err(refused.errno), options, &refused.ack);
                    Attrs::new(&end[NLMSG_HDRLEN + 4..]).for_each(drop);
                }
                if let Some(offset) = refused.ack.offset {
                    assert!((offset as usize) < m.bytes.len());
                }
            }
        }
        let Ok(message) = XfrmMessage::decode(&m) else { continue };
        if let Ok(request) = &kernel
            && m.header.nlmsg_flags & NLM_F_REQUEST != 0
        {
            assert_eq!(request.body, message.body);
        }
        for flags in [m.header.nlmsg_flags, 0] {
            if matches!(message.body, Body::DumpSa | Body::DumpPolicy) && flags == 0 {
                continue;
            }
            let bytes = message.encode(flags, m.header.nlmsg_seq, m.header.nlmsg_pid);
            assert_eq!(bytes.len(), message.encoded_len());
            let again = Messages::new(&bytes).next().expect("a written message reads");
            assert!(matches!(XfrmMessage::decode(&again), Ok(read) if read == message));
        }
    }
});
