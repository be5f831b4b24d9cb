# RSA keys in PKCS #1 whose numbers pass AWS-LC's checks, and which can never be used: python3 wrong_rsa.py
import random
r = random.Random(3)
e = 65537

def is_prime(n):
    if any(n % p == 0 for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)):
        return False
    s = ((n - 1) & (1 - n)).bit_length() - 1
    for _ in range(20):
        x = pow(r.randrange(2, n - 1), (n - 1) >> s, n)
        if x not in (1, n - 1) and n - 1 not in (pow(x, 1 << i, n) for i in range(s)):
            return False
    return True

def prime(bits):
    while True:
        # The two highest bits make products as long as they should be.
        n = r.getrandbits(bits) | 3 << (bits - 2) | 1
        if n % e != 1 and is_prime(n):
            return n

def tlv(tag, body):
    size = len(body)
    head = bytes([size]) if size < 128 else bytes([0x80 + (size.bit_length() + 7) // 8]) + size.to_bytes((size.bit_length() + 7) // 8, 'big')
    return bytes([tag]) + head + body

def key(name, p, q, turns):
    phi = (p - 1) * (q - 1)
    d = pow(e, -1, phi)
    numbers = [0, p * q, e, d + turns * phi, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p)]
    assert (p * q).bit_length() == 2048
    open(name, 'wb').write(tlv(0x30, b''.join(tlv(2, n.to_bytes(n.bit_length() // 8 + 1, 'big')) for n in numbers)))

p, q = prime(1024), prime(1024)
# The exponent is longer than the modulus.
key('wide.bad', p, q, 2)
# For what stands in place of a prime the exponent belongs to another number than p - 1. The factors begin with so many bits that
# the product has its highest two.
while True:
    composite = (prime(512) | 7 << 509) * (prime(512) | 7 << 509)
    if composite >> 1022 == 3 and composite % 2 and (composite - 1) % e:
        break
key('composite.bad', composite, q, 0)
