//! All parsers of bytes from a program: addresses, control messages, netlink messages and attributes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_abi::if_alg::{AlgAddress, Cmsgs, Control, push_cmsg};
use sealane_abi::netlink::{Attrs, Messages, push_attr};

fn address(data: &[u8]) {
    let Ok(a) = AlgAddress::parse(data) else { return };
    assert!(a.type_.len() <= 13 && !a.type_.contains(&0) && !a.name.contains(&0));
    if let (Ok(type_), Ok(name)) = (std::str::from_utf8(a.type_), std::str::from_utf8(a.name)) {
        let built = AlgAddress::build(type_, name);
        let b = AlgAddress::parse(&built).expect("a built address reads");
        assert_eq!((a.type_, a.name), (b.type_, b.name));
    }
}

fn control(data: &[u8]) {
    let mut rebuilt = Vec::new();
    let mut count = 0;
    for cmsg in Cmsgs::new(data) {
        count += 1;
        assert!(count <= data.len() / 16 + 1, "more messages than fit");
        let Ok(c) = cmsg else { break };
        push_cmsg(&mut rebuilt, c.level, c.type_, &[c.data]);
    }
    let parsed = Control::parse(data);
    if let Ok(c) = parsed {
        // Well-formed messages encode to the same bytes again.
        assert_eq!(Control::parse(&rebuilt), Ok(c));
        assert!(c.assoc_len < 0x8000_0000);
    }
}

fn netlink(data: &[u8]) {
    let mut total = 0;
    for m in Messages::new(data) {
        assert_eq!(m.bytes.len(), m.header.nlmsg_len as usize);
        total += m.bytes.len();
        assert!(total <= data.len());
        let mut rebuilt = Vec::new();
        let attrs: Vec<_> = Attrs::new(m.payload).collect();
        for a in &attrs {
            push_attr(&mut rebuilt, a.type_, a.payload);
        }
        assert_eq!(Attrs::new(&rebuilt).collect::<Vec<_>>(), attrs);
    }
}

fuzz_target!(|data: &[u8]| {
    address(data);
    control(data);
    netlink(data);
});
