//! Public keys: signatures of OpenSSL 3.0 over `a message`, and of RFC 8032.

use sealane_crypto_awslc::public::{Check, Curve, Parts, PublicKey, SaltLen};
use sealane_pkey::{Digest, Padding};

const RSA_SPKI: &str = "\
    30820122300d06092a864886f70d01010105000382010f003082010a0282010100c841af213c7d6c380f0fc8568ef47d1d79cde33f6e95\
    b88233047f8ab354370d883ddd3bf26d274d7783bc07859f4d8845338287f2c21544370aaf8c8a40b259ffdbdf7b0da702a6e56935d211\
    4a7fd16ef357cb2b78a7d116c362c5b18312118483660ef8b5ce72a407c401ac383137e64aebadc19e27b58b98145f8beb6d36b325b2fb\
    bb25c0658b896251cdd89ac25b5fff39ffe5e6c95d06e73d0ea4e157855df2cab3d0c79120e24158379d4f29b94386d172e31188cb45e7\
    ae1cb0e638081cb90497ebe45b04b30ee28dccb74a1e9155425fc411937e79f76047e2ac02229e96a3557fbf8f29c49b62d1478dd2f15e\
    4ee299d7d0ea5a88463bbc1e38610203010001";
const RSA_PKCS1_SHA256: &str = "\
    34c85d46d009879cb4c75912627951be6e7ea39bca549555b0630239ab1d575065f55fca96463a07062682724b45fbb9e22668924eb9f8\
    bb0e97c3d02468be4c0525f0d2a8cb2bcf84cbc5d8892f79403a593baf02ed2abc358241869814624fd5c7cb72449e83be6f1d99eb55b2\
    7bf306d23e7b1c6a909414c820ffdd6ac5a59c2e2a9e86e3ba266edaeadf1a50dd7c265a07dad4ceb14c8af18c00a3a49919f491e681d9\
    8eba66e66edb2be1e85943491264653acce3c9b27b9a126302e703b3c949f4c7296c940cf6d052011fa2c4f764e1a7d4917652be4f562c\
    f621b1fb8e2adaf35df15047cf829d6c1c561d410355e420e0ae9d2e95d62fdf9df13d91";
const RSA_PSS_SHA384_SALT_17: &str = "\
    2de28f7d7949e62555ad4a05192f9f6ddd0682ec64d88fa82b46537e5ec88b7eb6d7a111c7671f99b5838240b41578d904af74e7a3fba3\
    e09bc933c6825f65f0f19558f17dc1a456677abd575d4706c623664b20d2307424bfa288cb81bb09ca59d56db9202e910d201079bc1cc7\
    25b01b266aa28a31fd01d13181b9f2ec63eec41090c856156fd30c46afae96475a11f9ca4dcd6da9497aaec77e67f6178685f1a8f237b5\
    79c88b43c43617679ea61a54b277044b406192f6d27095728d2e8d90154b70f9e460a3737565968690c8bd03a63551cd89cbcf90946fec\
    935f8ef2e2babe2e6414480ac1ef522b623780c419ce8563a55a82e9f136e54388e19794";
const RSA_MD5_SHA1: &str = "\
    a6aa79d212c56ee88dc53dd45d757b084ad6924c92a1d3a8691f9205034f5d6734f395a1c0d4b88e5b51501e897e618d415fd63ed8e50c\
    f9756552d53d5a210c052002df9ba0635e966e6ebe78fb59fe4a06e56a1557c680f3b829788161464388af27fdeeff4b7701dd1b239f8b\
    5a50f349bbad6bbc8ee019d145d924e54f69226b2de445f271be2028d67be92c8a1220a2e2319fa1204ce7d4f9960665eb001ac44e08b4\
    b41fbc972a2ff3b522dfaeb7bdbbd22f9bdf7f3cca664543bfd66172de829c3a606dac84ca73bbcdfc9e12a33c45d6e427531ee1f13b33\
    de4ddc82a6fce0e46817a1f7bca576a53d95847b70df610f7360266b41c30641ccc5bfa6";
const P256_SPKI: &str = "\
    3059301306072a8648ce3d020106082a8648ce3d03010703420004a72f5840bb0dd11074974f832c623815bc0de4827a9b502ad7b3dcd0\
    a802fd038fa81d31b05acff6eac03f3f2e2594d07c9cfab6c70f836fa4a06b4cbd2781d4";
const P256_SHA512: &str = "\
    3046022100a1688d68fb2287d8bf0ebe6502bf536fdb1b971b2b2b7ccdc96ca632c24cdab40221008f3067d425eaa42a122e4a0080c80f\
    1dbb4b9da9873adeb7528e435f48be3a91";
const P384_SPKI: &str = "\
    3076301006072a8648ce3d020106052b810400220362000474a95d37492c822cc1ef55a327ee40787e7d9f9da4198125fef9382f10a094\
    ac525bacbb3ccb7c142efa45b8520a996f0950b0b5523d45933a200cb84b4df38a1a54e1d22cfb1135b9d106d471162342d7c273743a75\
    5a62a4645e566fcd69f8";
const P384_SHA1: &str = "\
    3066023100f42d52f505ec6d9c2e58da37d6ec65416ea4414ee93ec9ac78d311571fab7f9cb4b44448ce87036bc8f4310bfb6f63720231\
    00cc2e9ec34165e8ca67e73e6d90733a4d4bb3a7c4a5d98987a965d7645de9b4bfb8f4bb750a50c4204c4eae0f3d7ee308";
const P521_SPKI: &str = "\
    30819b301006072a8648ce3d020106052b81040023038186000401d9a56fbeafd8457084d5a8e7a11d9d1054d54f94791cccf44231098b\
    8db0e94bf9b63e4587399b3cd319f01e2cb0a107bb501bc58ab4270cd993778f3572a3a9f80085ddfdd8977aa0523ffdb9d1ec65380d08\
    a061faf69ed0d18d57e48580da300e5df0348f97afcca0184e59664fa0569b29dd5eb72f1540cd462950de794befb77e";
/// `a message`, hashed.
const SHA1: &str = "00f2d6699acc796593a3cd60f5a039955e2d03c2";
const SHA256: &str = "f53c09ca39717a45c62d9aca8f8113eddbfd5f81dcab0b33b1c1834075225e68";
const SHA384: &str = "9772402990d5de649a3e8acdbbb3120d3d9e254e21c970a6d2eb6fb2f29cf4940df0357553241ff5fcf56b277c1a9c92";
const SHA512: &str = "35d655e1c7ba8419feb0510dffc953c36e87b5c35de6a7d03211897a0d4e35251562625fb71fba29ead1453bf2865d00ff668f0f980318367b2303f81c3a7a26";
const MD5_SHA1: &str = "70645f4a342b238e21cb034ffde4279b00f2d6699acc796593a3cd60f5a039955e2d03c2";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

/// Checks a signature, and that none with a bit changed is one, nor one of another text.
fn check(key: &PublicKey, check: Check, text: &str, signature: &str) {
    let (text, signature) = (bytes(text), bytes(signature));
    assert!(key.verify(check, &text, &signature), "{check:?}");
    for at in 0..signature.len() {
        let mut other = signature.clone();
        other[at] ^= 1;
        assert!(!key.verify(check, &text, &other), "{check:?}, {at}");
    }
    let mut other = text.clone();
    if let Some(first) = other.first_mut() {
        *first ^= 1;
        assert!(!key.verify(check, &other, &signature), "{check:?}");
    }
    assert!(!key.verify(check, &text, &signature[1..]) && !key.verify(check, &text, &[]), "{check:?}");
}

#[test]
fn signatures_of_rsa() {
    let key = PublicKey::from_spki(&bytes(RSA_SPKI)).unwrap();
    check(&key, Check::RsaPkcs1(Digest::Sha256), SHA256, RSA_PKCS1_SHA256);
    check(&key, Check::RsaPkcs1Md5Sha1, MD5_SHA1, RSA_MD5_SHA1);
    let pss = |mgf1, salt_len| Check::RsaPss { digest: Digest::Sha384, mgf1, salt_len };
    check(&key, pss(Digest::Sha1, SaltLen::Bytes(17)), SHA384, RSA_PSS_SHA384_SALT_17);
    check(&key, pss(Digest::Sha1, SaltLen::Any), SHA384, RSA_PSS_SHA384_SALT_17);
    let (digest, signature) = (bytes(SHA384), bytes(RSA_PSS_SHA384_SALT_17));
    for wrong in [pss(Digest::Sha1, SaltLen::Bytes(16)), pss(Digest::Sha384, SaltLen::Any)] {
        assert!(!key.verify(wrong, &digest, &signature));
    }
    // Another digest of the same length is not what was signed.
    assert!(!key.verify(Check::RsaPkcs1(Digest::Sha1), &bytes(SHA1), &bytes(RSA_PKCS1_SHA256)));
    assert!(!key.verify(Check::Ecdsa, &bytes(SHA256), &bytes(RSA_PKCS1_SHA256)));
    assert_eq!(key.recover(Digest::Sha256, &bytes(RSA_PKCS1_SHA256)), Some(bytes(SHA256)));
    assert_eq!(key.recover(Digest::Sha512, &bytes(RSA_PKCS1_SHA256)), None);
}

#[test]
fn signatures_of_ecdsa() {
    let p256 = PublicKey::from_spki(&bytes(P256_SPKI)).unwrap();
    check(&p256, Check::Ecdsa, SHA512, P256_SHA512);
    let p384 = PublicKey::from_spki(&bytes(P384_SPKI)).unwrap();
    check(&p384, Check::Ecdsa, SHA1, P384_SHA1);
    assert!(!p384.verify(Check::Ecdsa, &bytes(SHA512), &bytes(P256_SHA512)));
    assert_eq!(p256.recover(Digest::Sha256, &bytes(P256_SHA512)), None);
    assert_eq!(p256.encrypt(&Padding::Pkcs1, b"x"), None);
}

/// RFC 8032, section 7.1, tests 1 and 2.
#[test]
fn signatures_of_ed25519() {
    for (key, text, signature) in [
        (
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe2465\
             5141438e7a100b",
        ),
        (
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00\
             d291612bb0c00",
        ),
    ] {
        let key = PublicKey::from_parts(&Parts::Ed25519(bytes(key).try_into().unwrap())).unwrap();
        check(&key, Check::Ed25519, text, signature);
        assert!(!key.verify(Check::RsaPkcs1Md5Sha1, &bytes(text), &bytes(signature)));
    }
}

#[test]
fn keys_come_from_their_numbers() {
    for spki in [RSA_SPKI, P256_SPKI, P384_SPKI] {
        let parts = PublicKey::from_spki(&bytes(spki)).unwrap().parts().unwrap();
        assert_eq!(PublicKey::from_parts(&parts).unwrap().parts(), Some(parts));
    }
    let Some(Parts::Ec(Curve::P256, point)) = PublicKey::from_spki(&bytes(P256_SPKI)).unwrap().parts() else {
        panic!("a point of P-256");
    };
    let compressed: Vec<u8> = [&[2 + (point[64] & 1)], &point[1..33]].concat();
    let same = PublicKey::from_parts(&Parts::Ec(Curve::P256, compressed)).unwrap();
    assert_eq!(same.parts(), Some(Parts::Ec(Curve::P256, point.clone())));
    let mut beside = point.clone();
    beside[64] ^= 1;
    for wrong in [
        Parts::Ec(Curve::P256, beside),
        Parts::Ec(Curve::P384, point),
        Parts::Ec(Curve::P256, vec![0]),
        Parts::Ec(Curve::P256, vec![]),
        Parts::Rsa { n: vec![], e: vec![3] },
        Parts::Rsa { n: vec![0xff; 256], e: vec![2] },
        Parts::Rsa { n: vec![0xff; 4096], e: vec![3] },
    ] {
        assert!(PublicKey::from_parts(&wrong).is_none(), "{wrong:?}");
    }
}

#[test]
fn what_is_no_key_is_refused() {
    for spki in [RSA_SPKI, P256_SPKI, P384_SPKI] {
        let der = bytes(spki);
        for len in 0..der.len() {
            assert!(PublicKey::from_spki(&der[..len]).is_none(), "{len}");
        }
        let longer = [der.as_slice(), &[0]].concat();
        assert!(PublicKey::from_spki(&longer).is_none(), "with a byte behind it");
    }
    assert!(PublicKey::from_spki(&bytes(P521_SPKI)).is_none(), "another curve");
}

#[test]
fn a_text_that_is_too_long_is_not_encrypted() {
    let key = PublicKey::from_spki(&bytes(RSA_SPKI)).unwrap();
    let oaep = Padding::Oaep { digest: Digest::Sha256, mgf1: Digest::Sha1, label: b"label".to_vec() };
    for (padding, most) in [(Padding::Pkcs1, 256 - 11), (oaep, 256 - 2 * 32 - 2)] {
        let sealed = key.encrypt(&padding, &vec![7; most]).unwrap();
        assert_eq!(sealed.len(), 256);
        assert_ne!(key.encrypt(&padding, &vec![7; most]), Some(sealed), "the padding is random");
        assert_eq!(key.encrypt(&padding, &vec![7; most + 1]), None);
    }
    assert_eq!(key.encrypt(&Padding::Tls { client_version: 0x0303, negotiated: 0 }, b"x"), None);
}
