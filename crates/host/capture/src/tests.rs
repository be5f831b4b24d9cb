use super::*;

type Seen = (i64, u16, Vec<u8>, usize);

/// All frames, and the result at the end.
fn read(bytes: &[u8]) -> (Vec<Seen>, Option<CaptureError>) {
    let mut frames = Vec::new();
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(e) => return (frames, Some(e)),
    };
    loop {
        match reader.next_frame() {
            Ok(Some(f)) => {
                assert_eq!(f.number, frames.len() as u64 + 1);
                frames.push((f.time_ns, f.link.0, f.data.to_vec(), f.len));
            }
            Ok(None) => return (frames, None),
            Err(e) => return (frames, Some(e)),
        }
    }
}

fn pcap(big: bool, nanoseconds: bool, link: u32, frames: &[(u32, u32, &[u8], u32)]) -> Vec<u8> {
    let w = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let h = |v: u16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let magic = if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let mut out = [&w(magic)[..], &h(2), &h(4), &w(0), &w(0), &w(65535), &w(link)].concat();
    for (s, fraction, data, len) in frames {
        out.extend([w(*s), w(*fraction), w(data.len() as u32), w(*len)].concat());
        out.extend_from_slice(data);
    }
    out
}

fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let w = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let len = w(body.len() as u32 + 12);
    [&w(kind)[..], &len, &body, &len].concat()
}

fn section(big: bool) -> Vec<u8> {
    let w = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let version = if big { [0, 1, 0, 0] } else { [1, 0, 0, 0] };
    block(big, 0x0a0d_0d0a, &[&w(0x1a2b_3c4d)[..], &version, &[0xff; 8]].concat())
}

fn interface(big: bool, link: u16, resolution: Option<u8>) -> Vec<u8> {
    let h = |v: u16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let mut body = [&h(link)[..], &[0; 6]].concat();
    if let Some(code) = resolution {
        body.extend([&h(9)[..], &h(1), &[code, 0, 0, 0], &[0; 4]].concat());
    }
    block(big, 1, &body)
}

fn enhanced(big: bool, interface: u32, ticks: u64, data: &[u8], len: u32) -> Vec<u8> {
    let w = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let fields = [interface, (ticks >> 32) as u32, ticks as u32, data.len() as u32, len];
    let mut body: Vec<u8> = fields.iter().flat_map(|f| w(*f)).collect();
    body.extend_from_slice(data);
    block(big, 6, &body)
}

#[test]
fn pcap_in_all_its_forms() {
    for big in [false, true] {
        let file = pcap(big, false, 1, &[(7, 8, b"abc", 3), (9, 999_999, b"", 60)]);
        let expected = vec![(7_000_008_000, 1, b"abc".to_vec(), 3), (9_999_999_000, 1, vec![], 60)];
        assert_eq!(read(&file), (expected, None));
        let file = pcap(big, true, 0x1000_0000 | 113, &[(7, 8, b"abc", 3)]);
        assert_eq!(read(&file), (vec![(7_000_000_008, 113, b"abc".to_vec(), 3)], None));
    }
}

#[test]
fn pcapng_in_all_its_forms() {
    for big in [false, true] {
        let file = [
            section(big),
            interface(big, 1, None),
            interface(big, 101, Some(9)),
            interface(big, 276, Some(0x80 | 10)),
            enhanced(big, 0, 5_000_001, b"eth", 3),
            enhanced(big, 1, 5_000_000_001, b"raw!", 100),
            block(big, 0x0bad, b"something else"),
            enhanced(big, 2, 5 * 1024 + 512, b"sll", 3),
            block(big, 3, &[&(if big { 5u32.to_be_bytes() } else { 5u32.to_le_bytes() })[..], b"plain"].concat()),
            // A new section has interfaces of its own.
            section(!big),
            interface(!big, 228, None),
            enhanced(!big, 0, 1, b"ip", 2),
        ]
        .concat();
        let expected = vec![
            (5_000_001_000, 1, b"eth".to_vec(), 3),
            (5_000_000_001, 101, b"raw!".to_vec(), 100),
            (5_500_000_000, 276, b"sll".to_vec(), 3),
            (0, 1, b"plain".to_vec(), 5),
            (1000, 228, b"ip".to_vec(), 2),
        ];
        assert_eq!(read(&file), (expected, None));
    }
}

#[test]
fn what_is_no_capture_is_said_so() {
    assert_eq!(read(b"").1, Some(CaptureError::NotACapture));
    assert_eq!(read(b"\x1f\x8b\x08 compressed, for example.......").1, Some(CaptureError::NotACapture));
    let file = pcap(false, false, 1, &[(1, 2, b"abcdef", 6)]);
    for len in 1..file.len() {
        let (frames, error) = read(&file[..len]);
        assert!(frames.is_empty());
        match len {
            24 => assert_eq!(error, None),
            _ => assert!(
                [Some(CaptureError::CutShort), Some(CaptureError::NotACapture)].contains(&error),
                "{len} {error:?}"
            ),
        }
    }
    let good = [section(false), interface(false, 1, None), enhanced(false, 0, 0, b"x", 1)].concat();
    let at = good.len() as u64;
    let (frames, error) = read(&[good.clone(), enhanced(false, 9, 0, b"x", 1)].concat());
    assert_eq!((frames.len(), error), (1, Some(CaptureError::Malformed(at))));
    // A block shorter than its own header (found by fuzzing).
    for len in 0..12 {
        let short = [&0x0bad_u32.to_le_bytes()[..], &[len, 0, 0, 0], &[0; 40]].concat();
        assert_eq!(read(&[good.clone(), short].concat()).1, Some(CaptureError::Malformed(at)), "{len}");
    }
    let mut lying = enhanced(false, 0, 0, b"x", 1);
    lying[20] = 0xff;
    let (frames, error) = read(&[good, lying].concat());
    assert_eq!(frames.len(), 1);
    assert!(matches!(error, Some(CaptureError::Malformed(_) | CaptureError::CutShort)), "{error:?}");
}

#[test]
fn large_frames_and_small_reads() {
    struct Drip<'a>(&'a [u8]);
    impl Read for Drip<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(buf.len()).min(7);
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }
    let large = vec![5; 200_000];
    let file = pcap(false, false, 1, &[(1, 2, &large, 200_000), (3, 4, b"x", 1)]);
    let mut reader = Reader::new(Drip(&file)).unwrap();
    assert_eq!(reader.next_frame().unwrap().unwrap().data, large);
    assert_eq!(reader.next_frame().unwrap().unwrap().data, b"x");
    assert!(reader.next_frame().unwrap().is_none());
    let mut endless = pcap(false, false, 1, &[]);
    endless.extend([0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0]);
    endless.resize(40 << 20, 0);
    assert_eq!(read(&endless).1, Some(CaptureError::Malformed(24)));
}

#[test]
fn what_is_written_reads_the_same() {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, LinkType::LINUX_SLL2).unwrap();
    writer.write(1_769_903_999_123_456_789, b"first").unwrap();
    writer.write(-5, b"").unwrap();
    assert_eq!(writer.write(0, &vec![0; 300_000]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    writer.finish().unwrap();
    let (frames, error) = read(&file);
    assert_eq!(error, None);
    assert_eq!(frames[0], (1_769_903_999_123_456_789, 276, b"first".to_vec(), 5));
    assert_eq!(frames.len(), 2);
}

#[test]
fn ip_is_found_behind_every_link() {
    let at = |link: LinkType, head: &[u8]| link.ip_at(&[head, &[0x45, 0, 0, 20]].concat());
    let ethernet = |types: &[u8]| [&[0; 12][..], types].concat();
    assert_eq!(at(LinkType::ETHERNET, &ethernet(&[8, 0])), Ok(14));
    assert_eq!(at(LinkType::ETHERNET, &ethernet(&[0x81, 0, 0, 5, 8, 0])), Ok(18));
    assert_eq!(at(LinkType::ETHERNET, &ethernet(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x86, 0xdd])), Ok(22));
    assert_eq!(at(LinkType::ETHERNET, &ethernet(&[8, 6])), Err(NotIp::Other));
    assert_eq!(at(LinkType::ETHERNET, &[0; 5]), Err(NotIp::Other));
    assert_eq!(at(LinkType::LINUX_SLL, &[&[0; 14][..], &[8, 0]].concat()), Ok(16));
    assert_eq!(at(LinkType::LINUX_SLL, &[&[0; 14][..], &[0x81, 0, 0, 5, 8, 0]].concat()), Ok(20));
    assert_eq!(at(LinkType::LINUX_SLL2, &[&[0x86, 0xdd][..], &[0; 18]].concat()), Ok(20));
    assert_eq!(at(LinkType::NULL, &[2, 0, 0, 0]), Ok(4));
    assert_eq!(at(LinkType::LOOP, &[0, 0, 0, 24]), Ok(4));
    for raw in [12, 14, 101, 228, 229] {
        assert_eq!(at(LinkType(raw), &[]), Ok(0));
    }
    assert_eq!(LinkType::RAW.ip_at(&[]), Err(NotIp::Other));
    assert_eq!(LinkType::RAW.ip_at(&[0x55]), Err(NotIp::Other));
    assert_eq!(at(LinkType(105), &[]), Err(NotIp::Link(LinkType(105))));
}
