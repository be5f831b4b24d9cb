# Texts that OpenSSL, 3.2 or later, gives for ciphertexts with wrong and right paddings of PKCS #1. Run with 4.0.3:
# python3 implicit.py ../../src/pkey/self_test.der 40 > implicit.txt
# for bits in 3072 4096; do python3 implicit.py rsa-$bits.der 5 > implicit-$bits.txt; done
import json, sys, random
from cryptography.hazmat.primitives.serialization import load_der_private_key
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.backends.openssl import backend
print(backend.openssl_version_text(), file=sys.stderr)
der=open(sys.argv[1],'rb').read()
key=load_der_private_key(der,None)
n=key.private_numbers().public_numbers.n
k=(n.bit_length()+7)//8
r=random.Random(1)
out=[]
cs=[0,1,n-1,2,n-2]+[r.randrange(n) for _ in range(int(sys.argv[2]))]
# right padding, a short one, wrong second byte
e=key.private_numbers().public_numbers.e
def enc(em): return pow(int.from_bytes(em,'big'),e,n)
for text in [b'',b'hello',bytes(k-11)]:
    cs.append(enc(b'\0\2'+b'\x55'*(k-3-len(text))+b'\0'+text))
cs.append(enc(b'\0\2'+b'\x55'*7+b'\0'+b'x'*(k-10)))
cs.append(enc(b'\0\1'+b'\x55'*(k-8)+b'\0hello'))
cs.append(enc(b'\0\2'+b'\x55'*(k-2)))
for c in cs:
    c=c.to_bytes(k,'big')
    p=key.decrypt(c,padding.PKCS1v15())
    out.append(c.hex()+' '+p.hex())
print('\n'.join(out))
