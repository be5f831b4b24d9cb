#!/bin/sh
# The keys, signatures and ciphertexts of this folder, by OpenSSL 3.0: what is deterministic is compared, byte for byte. The keys
# protect nothing.
set -eu
cd "$(dirname "$0")"
key() { openssl genpkey "$@" 2>/dev/null | openssl pkcs8 -topk8 -nocrypt -outform DER; }
key -algorithm RSA -pkeyopt rsa_keygen_bits:3072 > rsa-3072.der
key -algorithm RSA -pkeyopt rsa_keygen_bits:4096 > rsa-4096.der
key -algorithm EC -pkeyopt ec_paramgen_curve:P-256 > ec-p256.der
key -algorithm EC -pkeyopt ec_paramgen_curve:P-384 > ec-p384.der
key -algorithm ED25519 > ed25519.der
openssl pkcs8 -topk8 -nocrypt -inform DER -in ../../src/pkey/self_test.der -outform DER > rsa-2048.der
for name in rsa-2048 rsa-3072 rsa-4096 ec-p256 ec-p384 ed25519; do
    openssl pkey -inform DER -in $name.der -pubout -outform DER > $name.pub
done
# The formats of before.
openssl rsa -inform DER -in rsa-2048.der -traditional -outform DER -out rsa-2048.pkcs1 2>/dev/null
openssl ec -inform DER -in ec-p256.der -outform DER -out ec-p256.sec1 2>/dev/null
# What is not taken.
key -algorithm RSA -pkeyopt rsa_keygen_bits:1024 > bits-1024.bad
key -algorithm RSA -pkeyopt rsa_keygen_bits:2056 > bits-2056.bad
key -algorithm RSA-PSS -pkeyopt rsa_keygen_bits:2048 > algorithm-pss.bad
key -algorithm EC -pkeyopt ec_paramgen_curve:P-521 > algorithm-p521.bad
key -algorithm EC -pkeyopt ec_paramgen_curve:secp256k1 > algorithm-k256.bad
key -algorithm X25519 > algorithm-x25519.bad
openssl pkcs8 -topk8 -inform DER -in ec-p256.der -outform DER -passout pass:secret > encrypted.bad
# Signatures of digests whose bytes are all 7.
digest() { head -c "$1" /dev/zero | tr '\000' '\007' > digest.tmp; }
for pair in sha1:20 sha224:28 sha256:32 sha384:48 sha512:64; do
    digest "${pair#*:}"
    for name in rsa-2048 rsa-4096; do
        openssl pkeyutl -sign -keyform DER -inkey $name.der -in digest.tmp -pkeyopt digest:"${pair%:*}" > $name-"${pair%:*}".sig
        openssl pkeyutl -sign -keyform DER -inkey $name.der -in digest.tmp -pkeyopt digest:"${pair%:*}" \
            -pkeyopt rsa_padding_mode:pss -pkeyopt rsa_pss_saltlen:0 -pkeyopt rsa_mgf1_md:sha256 > $name-"${pair%:*}".pss
    done
done
digest 36
openssl pkeyutl -sign -keyform DER -inkey rsa-2048.der -in digest.tmp -pkeyopt digest:md5-sha1 > rsa-2048-md5-sha1.sig
# Ciphertexts of "a text".
printf 'a text' > text.tmp
oaep() {
    openssl pkeyutl -encrypt -pubin -keyform DER -inkey rsa-2048.pub -in text.tmp -pkeyopt rsa_padding_mode:oaep \
        -pkeyopt rsa_oaep_md:"$1" -pkeyopt rsa_mgf1_md:"$2" $3
}
oaep sha1 sha1 "" > sha1-sha1.oaep
oaep sha256 sha256 "" > sha256-sha256.oaep
oaep sha512 sha1 "-pkeyopt rsa_oaep_label:6c6162656c" > sha512-sha1-label.oaep
{ printf '\003\003'; head -c 46 /dev/zero | tr '\000' '\005'; } > text.tmp
openssl pkeyutl -encrypt -pubin -keyform DER -inkey rsa-2048.pub -in text.tmp > premaster.enc
rm -f digest.tmp text.tmp
