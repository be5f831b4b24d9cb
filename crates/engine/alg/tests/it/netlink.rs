//! NETLINK_CRYPTO, against what Linux 7.3 (user-mode, 7.3.4) answered to the same requests.

use crate::common::{DONTWAIT, PRIVILEGED, TASK, system};
use sealane_abi::cryptouser::{CryptoUserAlg, name_field};
use sealane_abi::netlink::{NETLINK_CRYPTO, Nlmsghdr, push_attr};
use sealane_abi::socket::SOCK_RAW;
use sealane_engine_alg::{Caller, Errno, Profile};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

type CryptoUser = sealane_engine_alg::CryptoUser<parking_lot::RawMutex>;

fn netlink(profile: Profile) -> Arc<CryptoUser> {
    let s = CryptoUser::create(&system(profile), SOCK_RAW, NETLINK_CRYPTO).unwrap();
    s.set_port(77);
    s
}

fn alg(name: &str, driver: &str, type_: u32, mask: u32) -> Vec<u8> {
    let alg = CryptoUserAlg {
        cru_name: name_field(name),
        cru_driver_name: name_field(driver),
        cru_module_name: name_field(""),
        cru_type: type_,
        cru_mask: mask,
        cru_refcnt: 0,
        cru_flags: 0,
    };
    alg.as_bytes().to_vec()
}

fn request(type_: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let header = Nlmsghdr {
        nlmsg_len: (16 + payload.len()) as u32,
        nlmsg_type: type_,
        nlmsg_flags: flags,
        nlmsg_seq: 5,
        nlmsg_pid: 0,
    };
    [header.as_bytes(), payload].concat()
}

/// Sends requests and returns for each datagram of the answer its type, flags and length, and the errno of an error.
fn ask(s: &CryptoUser, bytes: &[u8]) -> Vec<(u16, u16, usize, i32)> {
    assert_eq!(s.send(bytes, PRIVILEGED), Ok(bytes.len()));
    let mut answers = Vec::new();
    loop {
        let mut buf = vec![0; 65536];
        match s.recv(TASK, &mut buf, DONTWAIT) {
            Err(Errno::EAGAIN) => return answers,
            got => {
                let len = got.unwrap().len;
                let (header, rest) = Nlmsghdr::read_from_prefix(&buf).unwrap();
                assert_eq!((header.nlmsg_seq, header.nlmsg_pid), (5, 77));
                let number = if header.nlmsg_type == 2 { i32::from_ne_bytes(*rest.first_chunk().unwrap()) } else { 0 };
                answers.push((header.nlmsg_type, header.nlmsg_flags, len, number));
            }
        }
    }
}

#[test]
fn answers_as_linux_7_3() {
    let s = netlink(Profile::Linux7_3);
    let error = |number: i32| vec![(2, 0, 244, number)];
    let ack = (2, 0x100, 36, 0);
    let sha256 = alg("sha256", "", 0, 0);
    assert_eq!(ask(&s, &request(0x13, 1, &sha256)), [(0x13, 0, 308, 0)]);
    assert_eq!(ask(&s, &request(0x13, 5, &sha256)), [(0x13, 0, 308, 0), ack]);
    assert_eq!(ask(&s, &request(0x13, 1, &alg("", "gcm-aes-lib", 0, 0))), [(0x13, 0, 376, 0)]);
    assert_eq!(ask(&s, &request(0x13, 1, &alg("nope", "", 0, 0))), error(-2));
    assert_eq!(ask(&s, &request(0x13, 1, &alg("", "", 0, 0))), error(-2));
    assert_eq!(ask(&s, &request(0x13, 1, &[b'a'; 208])), error(-22));
    assert_eq!(ask(&s, &request(0x13, 1, &[b'a'; 207])), error(-22));
    assert_eq!(ask(&s, &request(0x13, 4, &sha256)), [ack], "not a request");
    assert_eq!(ask(&s, &request(1, 5, &[])), [ack], "netlink's own type");
    assert_eq!(ask(&s, &request(22, 1, &sha256)), error(-22));
    assert_eq!(ask(&s, &request(21, 1, &sha256)), error(-524));
    assert_eq!(ask(&s, &request(21, 1, &[])), [(2, 0, 36, -22)]);
    assert_eq!(ask(&s, &request(20, 5, &[])), [ack]);
    let with_attr = |alg: Vec<u8>, payload: &[u8]| {
        let mut bytes = alg;
        push_attr(&mut bytes, 1, payload);
        bytes
    };
    assert_eq!(ask(&s, &request(0x13, 1, &with_attr(sha256.clone(), &[0; 2]))), [(2, 0, 252, -34)]);
    let two = [request(0x13, 1, &sha256), request(0x13, 1, &alg("nope", "", 0, 0))].concat();
    assert_eq!(ask(&s, &two), [(0x13, 0, 308, 0), (2, 0, 244, -2)]);
    for (flags, payload) in [(0x301, &alg("", "", 0, 0)[..]), (0x301, &[]), (0x101, &[])] {
        assert_eq!(ask(&s, &request(0x13, flags, payload)), [(0x13, 2, 9952, 0), (3, 2, 20, 0)]);
    }
    let dumps = [request(0x13, 0x301, &sha256), request(0x13, 0x301, &sha256)].concat();
    assert_eq!(ask(&s, &dumps), [(0x13, 2, 9952, 0), (2, 0, 244, -16), (3, 2, 20, 0)]);
    assert_eq!(ask(&s, &request(0x10, 5, &sha256)), error(-17));
    assert_eq!(ask(&s, &request(0x10, 5, &with_attr(sha256.clone(), &[9, 0, 0, 0]))), [(2, 0, 252, -22)]);
    assert_eq!(ask(&s, &request(0x10, 5, &alg("cbc(des)", "", 0, 0))), [ack]);
    assert_eq!(ask(&s, &request(0x13, 5, &alg("cbc(des)", "", 0, 0))), [(0x13, 0, 380, 0), ack]);
    assert_eq!(ask(&s, &request(0x10, 5, &alg("nope", "", 0, 0))), error(-2));
    assert_eq!(ask(&s, &request(0x11, 5, &alg("", "sha256-lib", 0, 0))), error(-22));
    assert_eq!(ask(&s, &request(0x11, 5, &alg("cbc(des)", "", 0, 0))), error(-2));
    assert_eq!(ask(&s, &request(0x11, 5, &alg("", "cbc(ecb(des-generic))", 0, 0))), [ack]);
    assert_eq!(ask(&s, &request(0x13, 1, &alg("cbc(des)", "", 0, 0))), error(-2), "it is gone");
    assert_eq!(ask(&s, &request(0x13, 1, &alg("sha256", "", 5, 15))), error(-2));
    assert_eq!(ask(&s, &request(0x13, 1, &alg("sha256", "", 14, 15))), [(0x13, 0, 308, 0)]);
    let mut cut = request(0x13, 1, &sha256);
    cut[..4].copy_from_slice(&999u32.to_ne_bytes());
    assert_eq!(ask(&s, &cut), []);
    assert_eq!(ask(&s, b"abc"), []);
}

#[test]
fn a_report_is_the_kernels_byte_for_byte() {
    let s = netlink(Profile::Linux7_3);
    s.send(&request(0x13, 1, &alg("sha256", "", 0, 0)), Caller::default()).unwrap();
    let mut buf = [0; 400];
    let got = s.recv(TASK, &mut buf, DONTWAIT).unwrap();
    let mut want = alg("sha256", "sha256-lib", 0, 0);
    want[128..134].copy_from_slice(b"kernel");
    want[200..208].copy_from_slice(&[2, 0, 0, 0, 0x0e, 4, 4, 0]);
    push_attr(&mut want, 1, &300u32.to_ne_bytes());
    let report = [&name_field("shash")[..], &64u32.to_ne_bytes(), &32u32.to_ne_bytes()].concat();
    push_attr(&mut want, 3, &report);
    assert_eq!(buf[16..got.len], want);
}

#[test]
fn changes_need_privilege_and_reads_may_be_short() {
    let s = netlink(Profile::Linux7_3);
    for type_ in [0x10, 0x11, 0x12, 0x14] {
        s.send(&request(type_, 1, &alg("sha256", "sha256-lib", 0, 0)), Caller::default()).unwrap();
        let mut buf = [0; 300];
        s.recv(TASK, &mut buf, DONTWAIT).unwrap();
        assert_eq!(i32::from_ne_bytes(*buf[16..].first_chunk().unwrap()), -1, "{type_:#x}");
    }
    s.send(&request(0x13, 1, &alg("sha256", "", 0, 0)), Caller::default()).unwrap();
    let peek = s.recv(TASK, &mut [0; 10], DONTWAIT | 0x2 | 0x20).unwrap();
    assert_eq!((peek.len, peek.flags), (308, 0x20));
    let cut = s.recv(TASK, &mut [0; 10], DONTWAIT).unwrap();
    assert_eq!((cut.len, cut.flags), (10, 0x20));
    assert_eq!(s.recv(TASK, &mut [0; 10], DONTWAIT), Err(Errno::EAGAIN));
}

#[test]
fn replies_are_bounded() {
    let s = netlink(Profile::Linux7_3);
    let one = request(0x13, 1, &alg("sha256", "", 0, 0));
    for _ in 0..2000 {
        s.send(&one, Caller::default()).unwrap();
    }
    let mut buf = [0; 400];
    assert_eq!(s.recv(TASK, &mut buf, DONTWAIT), Err(Errno::ENOBUFS), "some were lost");
    let mut kept = 0;
    while s.recv(TASK, &mut buf, DONTWAIT).is_ok() {
        kept += 1;
    }
    assert!((100..=212_992 / 308).contains(&kept), "{kept}");
}

#[test]
fn proc_crypto_is_the_kernels() {
    let text = sealane_engine_alg::proc_crypto(&system(Profile::Linux7_3));
    let want = "name         : xts(aes)\ndriver       : xts-aes-lib\nmodule       : kernel\n";
    assert!(text.contains(want), "{text}");
    assert!(text.contains("min keysize  : 32\nmax keysize  : 64\n") && !text.contains("flags"));
    assert!(text.ends_with("digestsize   : 16\n\n"), "{text}");
    let open = sealane_engine_alg::proc_crypto(&system(Profile::Open));
    assert!(open.contains("driver       : sha256-portable\n"));
}
