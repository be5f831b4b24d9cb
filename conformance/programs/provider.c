// Makes the same calls of OpenSSL's EVP on two providers, and compares all that comes back: bytes, lengths, parameters and
// error codes.
//   provider FOLDER CONFIGURATION SEED ROUNDS WHAT...
// FOLDER has sealane.so, CONFIGURATION loads it beside `default`; WHAT: digests, macs, ciphers, pipelines, lists, records,
// misuse, reasons, threads, forks, loads; kept: from here on, keys are the keeper's.
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OURS "provider=sealane"
#define THEIRS "provider=default"

static OSSL_LIB_CTX *lib;
static unsigned long seed;
static const char *about = "";
static char steps[1 << 16];
static size_t steps_len;

static uint64_t number(void) {
  // xorshift64*
  static __thread uint64_t state;
  if (state == 0) state = seed * 0x9e3779b97f4a7c15u + 1;
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return state * 0x2545f4914f6cdd1du;
}

static size_t below(size_t n) { return n ? number() % n : 0; }

static void fill(unsigned char *at, size_t n) {
  for (size_t i = 0; i < n; i++) at[i] = number() >> 32;
}

// Lengths of which many are small, some stand at a border, and few are large.
static size_t length(size_t most) {
  static const size_t borders[] = {0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1024};
  size_t n;
  switch (below(4)) {
  case 0: n = borders[below(sizeof borders / sizeof *borders)]; break;
  case 1: n = below(most); break;
  default: n = below(100);
  }
  return n > most ? most : n;
}

static void step(const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(steps + steps_len, sizeof steps - steps_len, format, args);
  va_end(args);
  if (n > 0 && steps_len + n < sizeof steps) steps_len += n;
}

static void fail(const char *what) {
  fprintf(stderr, "%s: %s differs; seed %lu\n%s\n", about, what, seed, steps);
  exit(1);
}

static void forget_steps(void) { steps_len = 0, steps[0] = 0; }

static void begin(const char *name) {
  about = name;
  forget_steps();
}

static void need(int is_so, const char *what) {
  if (is_so) return;
  fprintf(stderr, "%s: %s; seed %lu\n%s\n", about, what, seed, steps);
  ERR_print_errors_fp(stderr);
  exit(1);
}

// The last error, without its place in the source.
static unsigned long error(void) {
  unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  return code;
}

struct result {
  int ok;
  unsigned long error;
  size_t len;
  unsigned char *bytes;
};

static void same(const char *what, const struct result *a, const struct result *b) {
  if (a->ok != b->ok) {
    step("  default %d, sealane %d; errors %lx %lx\n", a->ok, b->ok, a->error, b->error);
    fail("success");
  }
  if (!a->ok && a->error != b->error) {
    step("  default %s, sealane %s\n", ERR_error_string(a->error, NULL), ERR_error_string(b->error, NULL));
    fail("the error");
  }
  if (a->ok && (a->len != b->len || memcmp(a->bytes, b->bytes, a->len))) {
    step("  %zu and %zu bytes\n", a->len, b->len);
    fail(what);
  }
}

// ---------------------------------------------------------------------------------------------------------------- digests

static const char *digests[] = {"MD5", "SHA1", "SHA2-224", "SHA2-256", "SHA2-384", "SHA2-512", "SHA2-512/224",
                                "SHA2-512/256", "SHA3-224", "SHA3-256", "SHA3-384", "SHA3-512", "SHAKE-128", "SHAKE-256"};
enum { DIGESTS = sizeof digests / sizeof *digests };

// OpenSSL 3.3 and later.
extern int EVP_DigestSqueeze(EVP_MD_CTX *ctx, unsigned char *out, size_t len) __attribute__((weak));

// The output in pieces, once in one and once in several.
static void squeeze(EVP_MD_CTX *ctx, unsigned char *out, size_t len, int in_pieces) {
  for (size_t at = 0; at < len;) {
    size_t n = in_pieces ? below(1 + len - at) : len;
    if (in_pieces) step("squeeze %zu\n", n);
    need(EVP_DigestSqueeze(ctx, out + at, n), "cannot be squeezed");
    at += n;
  }
}

static void one_digest(const char *name) {
  begin(name);
  EVP_MD *md[2] = {EVP_MD_fetch(lib, name, THEIRS), EVP_MD_fetch(lib, name, OURS)};
  need(md[0] && md[1], "cannot be fetched");
  static unsigned char data[20000];
  size_t len = length(sizeof data);
  fill(data, len);
  unsigned char out[2][700] = {{0}};
  unsigned int out_len[2] = {0};
  // Since OpenSSL 3.4 the output of SHAKE has no length of its own.
  int is_xof = !!(EVP_MD_get_flags(md[0]) & EVP_MD_FLAG_XOF), has_length = EVP_MD_get_size(md[0]) > 0;
  size_t xof = is_xof && (!has_length || below(2)) ? 1 + below(600) : 0;
  int squeezed = xof && EVP_DigestSqueeze && below(2);
  EVP_MD_CTX *ctx = EVP_MD_CTX_new(), *copy = EVP_MD_CTX_new();
  need(EVP_DigestInit_ex2(ctx, md[0], NULL) && EVP_DigestUpdate(ctx, data, len), "default fails");
  if (squeezed) squeeze(ctx, out[0], xof, 0);
  else need(xof ? EVP_DigestFinalXOF(ctx, out[0], xof) : EVP_DigestFinal_ex(ctx, out[0], &out_len[0]), "default fails");
  if (below(2)) {
    // A context that was freed in the middle of a message, or with a length of its own, may serve again.
    step("free\n");
    EVP_MD_CTX *freed = EVP_MD_CTX_new();
    need(EVP_DigestInit_ex2(freed, md[1], NULL) && EVP_DigestUpdate(freed, data, len), "cannot be updated");
    if (is_xof && below(2)) need(EVP_DigestFinalXOF(freed, out[1], 3), "cannot be ended");
    EVP_MD_CTX_free(freed), memset(out[1], 0, sizeof out[1]);
  }
  need(EVP_DigestInit_ex2(ctx, md[1], NULL), "cannot be started");
  for (size_t at = 0; at < len;) {
    size_t n = 1 + below(below(4) ? 200 : len - at);
    if (n > len - at) n = len - at;
    step("update %zu\n", n);
    need(EVP_DigestUpdate(ctx, data + at, n), "cannot be updated");
    at += n;
    if (below(8) == 0) {
      step("copy\n");
      need(EVP_MD_CTX_copy_ex(copy, ctx), "cannot be copied");
      EVP_MD_CTX *other = ctx;
      ctx = copy, copy = other;
    }
  }
  if (squeezed) squeeze(ctx, out[1], xof, 1);
  else need(xof ? EVP_DigestFinalXOF(ctx, out[1], xof) : EVP_DigestFinal_ex(ctx, out[1], &out_len[1]), "cannot be ended");
  if (out_len[0] != out_len[1] || memcmp(out[0], out[1], sizeof out[0])) fail("the digest");
  if (is_xof && EVP_DigestSqueeze) {
    // An output that was asked for as a whole has no next bytes, and a message whose output began does not go on.
    int squeezes = EVP_DigestSqueeze(ctx, out[0], 1);
    if (squeezes != squeezed) step("squeezes %d\n", squeezes), fail("a squeeze after the end");
    if (squeezed && EVP_DigestFinalXOF(ctx, out[0], 1)) fail("an end after a squeeze");
    ERR_clear_error();
  }
  EVP_MD_CTX_free(ctx), EVP_MD_CTX_free(copy), EVP_MD_free(md[0]), EVP_MD_free(md[1]);
}

// ------------------------------------------------------------------------------------------------------------------- MACs

struct mac_case {
  const char *mac, *key, *value;
  size_t key_len;
};

static const struct mac_case macs[] = {
    {"HMAC", "digest", "MD5", 0},          {"HMAC", "digest", "SHA1", 0},         {"HMAC", "digest", "SHA224", 0},
    {"HMAC", "digest", "sha256", 0},       {"HMAC", "digest", "SHA384", 0},       {"HMAC", "digest", "SHA-512", 0},
    {"HMAC", "digest", "SHA512-256", 0},   {"HMAC", "digest", "SHA512-224", 0},   {"HMAC", "digest", "SHA3-256", 0},
    {"HMAC", "digest", "SHA3-224", 0},     {"HMAC", "digest", "SHA3-384", 0},     {"HMAC", "digest", "SHA3-512", 0},
    {"HMAC", "digest", "RIPEMD-160", 0},   {"HMAC", "digest", "SM3", 0},          {"HMAC", "digest", "BLAKE2B-512", 0},
    {"CMAC", "cipher", "AES-128-CBC", 16}, {"CMAC", "cipher", "aes192", 24},      {"CMAC", "cipher", "AES-256-CBC", 32},
    {"CMAC", "cipher", "DES-EDE3-CBC", 24}, {"CMAC", "cipher", "CAMELLIA-192-CBC", 24}, {"CMAC", "cipher", "SM4-CBC", 16},
    {"GMAC", "cipher", "AES-128-GCM", 16}, {"GMAC", "cipher", "id-aes192-GCM", 24}, {"GMAC", "cipher", "AES-256-GCM", 32},
    {"KMAC-128", NULL, NULL, 0},           {"KMAC256", NULL, NULL, 0},
};
enum { MACS = sizeof macs / sizeof *macs };

// Keys are the keeper's, which does not compute all MACs.
static int kept;

static int is_refused(const struct mac_case *c) { return kept && (!c->value || !strncmp(c->value, "SHA512-", 7)); }

static void one_mac(const struct mac_case *c) {
  begin(c->value ? c->value : c->mac);
  static unsigned char data[8000], key[600], iv[140], custom[200];
  size_t len = length(sizeof data), key_len = c->key_len;
  int is_kmac = c->value == NULL, is_gmac = !strcmp(c->mac, "GMAC");
  if (key_len == 0) key_len = is_kmac ? 4 + below(509) : below(300);
  // A key that is too long or too short.
  if (below(10) == 0) key_len = is_kmac ? below(4) : c->key_len ? below(40) : key_len;
  fill(data, len), fill(key, key_len), fill(iv, sizeof iv), fill(custom, sizeof custom);
  size_t iv_len = below(2) ? 12 : 1 + below(sizeof iv), custom_len = below(sizeof custom), size = 1 + below(300);
  int xof = below(2);
  OSSL_PARAM params[5];
  int n = 0;
  if (c->value) params[n++] = OSSL_PARAM_construct_utf8_string(c->key, (char *)c->value, 0);
  if (is_gmac) params[n++] = OSSL_PARAM_construct_octet_string("iv", iv, iv_len);
  if (is_kmac && below(2)) params[n++] = OSSL_PARAM_construct_octet_string("custom", custom, custom_len);
  if (is_kmac && below(2)) params[n++] = OSSL_PARAM_construct_size_t("size", &size);
  if (is_kmac && below(2)) params[n++] = OSSL_PARAM_construct_int("xof", &xof);
  params[n] = OSSL_PARAM_construct_end();
  static unsigned char out[2][400];
  memset(out, 0, sizeof out);
  size_t out_len[2] = {0}, size_before[2], size_after[2], block[2];
  int again = below(3) == 0, ok[2];
  unsigned long errors[2];
  uint64_t splits = number();
  for (int i = 0; i < 2; i++) {
    EVP_MAC *mac = EVP_MAC_fetch(lib, c->mac, i ? OURS : THEIRS);
    need(mac != NULL, "cannot be fetched");
    EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
    size_before[i] = EVP_MAC_CTX_get_mac_size(ctx);
    ok[i] = EVP_MAC_init(ctx, key, key_len, params);
    errors[i] = error();
    size_after[i] = EVP_MAC_CTX_get_mac_size(ctx), block[i] = EVP_MAC_CTX_get_block_size(ctx);
    if (ok[i]) {
      for (int turn = 0; turn <= again; turn++) {
        if (turn) {
          // The same key once more; GMAC needs another IV.
          OSSL_PARAM more[] = {OSSL_PARAM_construct_octet_string("iv", iv + 1, 12), OSSL_PARAM_construct_end()};
          need(EVP_MAC_init(ctx, NULL, 0, is_gmac ? more : NULL), "cannot be started again");
        }
        uint64_t bits = splits;
        for (size_t at = 0; at < len;) {
          size_t part = i ? 1 + bits % 97 : len;
          bits = bits * 6364136223846793005u + 1442695040888963407u;
          if (part > len - at) part = len - at;
          need(EVP_MAC_update(ctx, data + at, part), "cannot be updated");
          at += part;
          if (i && bits >> 61 == 0) {
            EVP_MAC_CTX *copy = EVP_MAC_CTX_dup(ctx);
            need(copy != NULL, "cannot be copied");
            EVP_MAC_CTX_free(ctx);
            ctx = copy;
          }
        }
        need(EVP_MAC_final(ctx, out[i], &out_len[i], sizeof out[i]), "cannot be ended");
      }
    }
    EVP_MAC_CTX_free(ctx), EVP_MAC_free(mac);
  }
  if (is_refused(c)) {
    const char *reason = ERR_reason_error_string(errors[1]);
    if (ok[1] || !reason || strcmp(reason, "not supported")) step("%s\n", reason ? reason : ""), fail("a MAC that the keeper lacks");
    return;
  }
  step("key %zu, iv %zu, %zu bytes; ok %d %d, errors %lx %lx\n", key_len, iv_len, len, ok[0], ok[1], errors[0], errors[1]);
  if (ok[0] != ok[1]) fail("success");
  if (!ok[0]) return;
  step("sizes %zu %zu, then %zu %zu, blocks %zu %zu\n", size_before[0], size_before[1], size_after[0], size_after[1],
       block[0], block[1]);
  if (size_before[0] != size_before[1] || size_after[0] != size_after[1] || block[0] != block[1]) fail("a size");
  if (out_len[0] != out_len[1] || memcmp(out[0], out[1], sizeof out[0])) fail("the tag");
}

// ---------------------------------------------------------------------------------------------------------------- ciphers

static const char *ciphers[] = {
    "AES-128-ECB", "AES-192-ECB", "AES-256-ECB", "AES-128-CBC", "AES-192-CBC", "AES-256-CBC", "AES-128-CTR", "AES-192-CTR",
    "AES-256-CTR", "AES-128-GCM", "AES-192-GCM", "AES-256-GCM", "AES-128-CCM", "AES-192-CCM", "AES-256-CCM",
    "AES-128-CBC-CTS", "AES-192-CBC-CTS", "AES-256-CBC-CTS", "AES-128-XTS", "AES-256-XTS", "DES-EDE3-CBC",
    "ChaCha20-Poly1305"};
enum { CIPHERS = sizeof ciphers / sizeof *ciphers };

enum { ROOM = 6000 };

// Both contexts, on which every call is made.
struct pair {
  EVP_CIPHER *cipher[2];
  EVP_CIPHER_CTX *ctx[2];
  int enc, mode, aead;
};

static unsigned char buffers[2][ROOM + 600];

static void fetch_pair(struct pair *p, const char *name) {
  for (int i = 0; i < 2; i++) {
    p->cipher[i] = EVP_CIPHER_fetch(lib, name, i ? OURS : THEIRS);
    need(p->cipher[i] != NULL, "cannot be fetched");
    p->ctx[i] = EVP_CIPHER_CTX_new();
  }
}

static void free_pair(struct pair *p) {
  for (int i = 0; i < 2; i++) EVP_CIPHER_CTX_free(p->ctx[i]), EVP_CIPHER_free(p->cipher[i]);
}

// Runs one call on both, with the same bytes in both buffers, and compares.
#define BOTH(what, call)                                                                                                      \
  ({                                                                                                                          \
    struct result results[2];                                                                                                 \
    for (int i = 0; i < 2; i++) {                                                                                             \
      EVP_CIPHER_CTX *ctx = p->ctx[i];                                                                                        \
      unsigned char *out = buffers[i];                                                                                        \
      size_t out_len = 0;                                                                                                     \
      (void)ctx, (void)out;                                                                                                   \
      ERR_clear_error();                                                                                                      \
      int ok = (call);                                                                                                        \
      results[i] = (struct result){ok, error(), out_len, out};                                                                \
    }                                                                                                                         \
    same(what, &results[0], &results[1]);                                                                                     \
    results[1].ok;                                                                                                            \
  })

static void compare_params(struct pair *p) {
  for (int k = 0; k < 6; k++) {
    static const char *names[] = {"keylen", "ivlen", "padding", "num", "taglen", "tlsaadpad"};
    BOTH(names[k], ({
           size_t value = 0;
           OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(names[k], &value), OSSL_PARAM_construct_end()};
           int ok = EVP_CIPHER_CTX_get_params(ctx, params);
           memcpy(out, &value, out_len = sizeof value);
           ok;
         }));
  }
  for (int k = 0; k < 2; k++) {
    BOTH(k ? "updated-iv" : "iv", ({
           memset(out, 0, 16);
           out_len = 16;
           k ? EVP_CIPHER_CTX_get_updated_iv(ctx, out, 16) : EVP_CIPHER_CTX_get_original_iv(ctx, out, 16);
         }));
  }
  // The keys differ, and have a length that only the cipher knows.
  BOTH("a random key", ({
         unsigned char key[64];
         EVP_CIPHER_CTX_rand_key(ctx, key) > 0;
       }));
  // As EVP_CIPHER_CTX_iv asks: by the address of the context's own.
  BOTH("the IV's address", ({
         void *at = NULL;
         OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_ptr("updated-iv", &at, 16), OSSL_PARAM_construct_end()};
         int got = EVP_CIPHER_CTX_get_params(ctx, params);
         memset(out, 0, 16);
         if (got && at) memcpy(out, at, EVP_CIPHER_CTX_get_iv_length(ctx));
         out_len = 16;
         got;
       }));
}

static void compare_init(struct pair *p, int with_key, int with_iv) {
  static unsigned char key[64], iv[128];
  fill(key, sizeof key), fill(iv, sizeof iv);
  step("init%s%s\n", with_key ? " key" : "", with_iv ? " iv" : "");
  BOTH("init", EVP_CipherInit_ex2(ctx, NULL, with_key ? key : NULL, with_iv ? iv : NULL, p->enc, NULL));
}

// Takes a copy of both contexts and goes on with it.
static void compare_copy(struct pair *p) {
  step("copy\n");
  EVP_CIPHER_CTX *copies[2] = {EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_new()};
  for (int i = 0; i < 2; i++) {
    need(EVP_CIPHER_CTX_copy(copies[i], p->ctx[i]), "cannot be copied");
    EVP_CIPHER_CTX_free(p->ctx[i]);
    p->ctx[i] = copies[i];
  }
}

// Text of a random length; in place where both providers are given whole blocks only.
static void compare_update(struct pair *p, size_t len, int in_place) {
  static unsigned char text[ROOM];
  fill(text, len);
  step("update %zu%s\n", len, in_place ? " in place" : "");
  BOTH("text", ({
         memset(out, 0, sizeof buffers[0]);
         if (in_place) memcpy(out, text, len);
         int n = 0, done = EVP_CipherUpdate(ctx, out, &n, in_place ? out : text, len);
         out_len = done ? n : 0;
         done;
       }));
}

static void compare_final(struct pair *p) {
  step("final\n");
  BOTH("the end", ({
         memset(out, 0, sizeof buffers[0]);
         int n = 0, done = EVP_CipherFinal_ex(ctx, out, &n);
         out_len = done ? n : 0;
         done;
       }));
}

// Plain modes: random calls in random order.
static void plain(struct pair *p) {
  int is_stream = p->mode == EVP_CIPH_CTR_MODE || p->mode == EVP_CIPH_XTS_MODE;
  int is_once = p->mode == EVP_CIPH_XTS_MODE || (EVP_CIPHER_get_flags(p->cipher[0]) & EVP_CIPH_FLAG_CTS);
  // Ciphertext stealing does not look whether there is a key.
  if (is_once || below(20)) compare_init(p, 1, 1);
  if (EVP_CIPHER_get_flags(p->cipher[0]) & EVP_CIPH_FLAG_CTS) {
    char name[] = "CS1";
    name[2] += below(3);
    step("%s\n", name);
    BOTH("cts_mode", ({
           OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("cts_mode", name, 0), OSSL_PARAM_construct_end()};
           EVP_CIPHER_CTX_set_params(ctx, params);
         }));
  }
  for (size_t n = below(12); n > 0; n--) {
    switch (below(is_once ? 6 : 10)) {
    case 0: compare_params(p); break;
    case 1: compare_copy(p); break;
    case 2: step("padding\n"); int pad = below(2); BOTH("padding", EVP_CIPHER_CTX_set_padding(ctx, pad)); break;
    case 3: compare_init(p, below(2), below(2)); break;
    case 4:
      if (is_once) compare_update(p, length(ROOM), below(2));
      else compare_final(p);
      break;
    default: compare_update(p, length(ROOM), is_stream && below(2));
    }
  }
  compare_final(p);
  compare_params(p);
}

static void set_tag(struct pair *p, size_t len, unsigned char *tag) {
  step("tag %zu\n", len);
  BOTH("tag", EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, len, tag) > 0);
}

// Authenticated modes: a message as programs make it, with a mistake now and then; then opened again, also with a wrong tag.
static void authenticated(struct pair *p) {
  static unsigned char key[32], iv[128], aad[600], text[ROOM], sealed[ROOM], tag[16];
  int is_ccm = p->mode == EVP_CIPH_CCM_MODE, is_chacha = p->mode == 0;
  size_t iv_len = is_chacha || below(2) ? 12 : is_ccm ? 7 + below(7) : 1 + below(128);
  size_t tag_len = is_ccm ? 4 + 2 * below(7) : below(2) ? 16 : 1 + below(16);
  size_t len = length(ROOM), aad_len = below(3) ? length(sizeof aad) : 0;
  fill(key, sizeof key), fill(iv, sizeof iv), fill(aad, aad_len), fill(text, len);
  int wrong = below(4) == 0;
  for (p->enc = 1; p->enc >= 0; p->enc--) {
    step("%s: iv %zu, tag %zu, aad %zu, text %zu\n", p->enc ? "seal" : "open", iv_len, tag_len, aad_len, len);
    BOTH("init", EVP_CipherInit_ex2(ctx, NULL, NULL, NULL, p->enc, NULL));
    if (iv_len != 12 || is_ccm)
      BOTH("iv length", EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, iv_len, NULL) > 0);
    if (!p->enc && wrong) tag[below(tag_len)] ^= 1 << below(8);
    if (is_ccm || !p->enc) set_tag(p, tag_len, p->enc ? NULL : tag);
    BOTH("init", EVP_CipherInit_ex2(ctx, NULL, key, iv, p->enc, NULL));
    if (below(8) == 0) compare_copy(p);
    if (is_ccm)
      BOTH("length", ({ int n; EVP_CipherUpdate(ctx, NULL, &n, NULL, len); }));
    for (size_t at = 0; at < aad_len;) {
      size_t part = is_ccm ? aad_len : 1 + below(aad_len - at);
      BOTH("aad", ({ int n = 0, ok = EVP_CipherUpdate(ctx, NULL, &n, aad + at, part); ok; }));
      at += part;
    }
    int ok = 1;
    for (size_t at = 0; at < len && ok;) {
      size_t part = is_ccm || below(3) == 0 ? len - at : 1 + below(len - at);
      int in_place = below(2);
      step("text %zu%s\n", part, in_place ? " in place" : "");
      ok = BOTH("text", ({
                  const unsigned char *from = (p->enc ? text : sealed) + at;
                  memset(out, 0, sizeof buffers[0]);
                  if (in_place) memcpy(out, from, part);
                  int n = 0, done = EVP_CipherUpdate(ctx, out, &n, in_place ? out : from, part);
                  out_len = done ? n : 0;
                  done;
                }));
      if (p->enc && ok) memcpy(sealed + at, buffers[1], part);
      if (!p->enc && ok && memcmp(buffers[1], text + at, part)) fail("the text that was sealed");
      if (below(10) == 0) compare_copy(p);
      at += part;
    }
    // The end of CCM without text, or after a forged one, depends on the version of OpenSSL.
    if (is_ccm && (len == 0 || !ok)) return;
    compare_final(p);
    if (p->enc) {
      step("tag\n");
      BOTH("tag", ({ out_len = tag_len; EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, tag_len, out) > 0; }));
      memcpy(tag, buffers[1], tag_len);
    }
  }
}

// GCM as OpenSSH uses it: a whole IV restored, each packet's taken from the context before it, EVP_Cipher for all of the text.
static void packets(struct pair *p) {
  static unsigned char key[32], iv[12], text[ROOM], sealed[2][ROOM], tags[2][16];
  fill(key, sizeof key), fill(iv, sizeof iv);
  for (p->enc = 1; p->enc >= 0; p->enc--) {
    BOTH("init", EVP_CipherInit_ex2(ctx, NULL, NULL, iv, p->enc, NULL));
    BOTH("the IV", EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_IV_FIXED, -1, iv) > 0);
    BOTH("init", EVP_CipherInit_ex2(ctx, NULL, key, NULL, -1, NULL));
    for (int packet = 0; packet < 2; packet++) {
      // All of the IV, one byte as OpenSSH asks for, and all of it by -1.
      int len = 16 * (1 + packet), part = !p->enc ? -1 : packet ? 1 : 12;
      step("packet %d, %s\n", packet, p->enc ? "sealed" : "opened");
      BOTH("the next IV", ({ out_len = part == 1 ? 1 : 12; EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_IV_GEN, part, out) > 0; }));
      if (!p->enc) BOTH("tag", EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 16, tags[packet]) > 0);
      BOTH("length", EVP_Cipher(ctx, NULL, (const unsigned char *)"\0\0\0\20", 4) >= 0);
      int ok = BOTH("text", ({ out_len = len; EVP_Cipher(ctx, out, p->enc ? text : sealed[packet], len) >= 0; }));
      if (!ok) fail("a packet");
      if (p->enc) memcpy(sealed[packet], buffers[1], len);
      if (!BOTH("end", EVP_Cipher(ctx, NULL, NULL, 0) >= 0)) fail("a packet's end");
      if (p->enc) BOTH("tag", ({ out_len = 16; EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, out) > 0; }));
      if (p->enc) memcpy(tags[packet], buffers[1], 16);
      compare_params(p);
    }
  }
}

static void one_cipher(const char *name) {
  begin(name);
  struct pair pair, *p = &pair;
  fetch_pair(p, name);
  p->enc = below(2), p->mode = EVP_CIPHER_get_mode(p->cipher[0]);
  p->aead = !!(EVP_CIPHER_get_flags(p->cipher[0]) & EVP_CIPH_FLAG_AEAD_CIPHER);
  step("%s\n", p->enc ? "encrypt" : "decrypt");
  BOTH("init", EVP_CipherInit_ex2(ctx, p->cipher[i], NULL, NULL, p->enc, NULL));
  if (p->mode == EVP_CIPH_GCM_MODE && below(4) == 0) packets(p);
  else p->aead ? authenticated(p) : plain(p);
  free_pair(p);
}

// -------------------------------------------------------------------------------------------------------------- pipelines

// OpenSSL 3.5 and later.
#define PIPES(name, ...) extern int name(EVP_CIPHER_CTX *, __VA_ARGS__) __attribute__((weak))
PIPES(EVP_CipherPipelineEncryptInit, const EVP_CIPHER *, const unsigned char *, size_t, size_t, const unsigned char **, size_t);
PIPES(EVP_CipherPipelineDecryptInit, const EVP_CIPHER *, const unsigned char *, size_t, size_t, const unsigned char **, size_t);
PIPES(EVP_CipherPipelineUpdate, unsigned char **, size_t *, const size_t *, const unsigned char **, const size_t *);
PIPES(EVP_CipherPipelineFinal, unsigned char **, size_t *, const size_t *);

enum { MOST_PIPES = 9, MOST_PIECES = 3, MOST_PIPED = 40000 };

// A message of each pipe, by the default provider one by one.
struct piped {
  unsigned char iv[16], aad[64], plain[MOST_PIPED], sealed[MOST_PIPED], tag[16];
  size_t len, aad_len;
};

static void seal_piped(const EVP_CIPHER *cipher, const unsigned char *key, size_t iv_len, struct piped *m) {
  int len;
  EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
  need(EVP_EncryptInit_ex2(ctx, cipher, NULL, NULL, NULL) && EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, iv_len, NULL) &&
         EVP_EncryptInit_ex2(ctx, NULL, key, m->iv, NULL) && EVP_EncryptUpdate(ctx, NULL, &len, m->aad, m->aad_len) &&
         EVP_EncryptUpdate(ctx, m->sealed, &len, m->plain, m->len) && EVP_EncryptFinal_ex(ctx, m->sealed, &len) &&
         EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, m->tag),
       "cannot be sealed");
  EVP_CIPHER_CTX_free(ctx);
}

static void one_pipeline(void) {
  static struct piped list[MOST_PIPES];
  static unsigned char work[MOST_PIPES][MOST_PIPED], apart[MOST_PIPES][MOST_PIPED];
  static const char *names[] = {"AES-128-GCM", "AES-192-GCM", "AES-256-GCM"};
  const char *name = names[below(3)];
  begin(name);
  EVP_CIPHER *cipher[2] = {EVP_CIPHER_fetch(lib, name, THEIRS), EVP_CIPHER_fetch(lib, name, OURS)};
  EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
  unsigned char key[32];
  for (int turn = 0; turn < 2; turn++) {
    // The second turn has other IVs, and the key of the first one or another. It does not name the cipher again, because
    // OpenSSL 3.5 and 4.0 then forget the number of pipes.
    const unsigned char *in[MOST_PIPES], *ivs[MOST_PIPES];
    unsigned char *out[MOST_PIPES], *tags[MOST_PIPES], tag[MOST_PIPES][16], **all_tags = tags;
    size_t pipes = 1 + below(MOST_PIPES), inl[MOST_PIPES], outl[MOST_PIPES], room[MOST_PIPES], at[MOST_PIPES] = {0};
    size_t iv_len = below(4) ? 12 : 1 + below(16), tag_len = below(3) ? 16 : 1 + below(16);
    size_t pieces = below(3) ? 1 : 1 + below(MOST_PIECES);
    int enc = below(2), in_place = below(2), early = below(2), is_known = turn > 0 && below(2), wrong = below(3) == 0;
    if (!is_known) fill(key, sizeof key);
    step("%s %zu pipes, iv %zu, tag %zu, %zu pieces%s%s%s%s\n", enc ? "encrypt" : "decrypt", pipes, iv_len, tag_len, pieces,
         in_place ? ", in place" : "", early ? ", tags early" : "", is_known ? ", known key" : "", wrong ? ", wrong" : "");
    for (size_t i = 0; i < pipes; i++) {
      struct piped *m = &list[i];
      m->len = below(20) ? length(2000) : length(MOST_PIPED), m->aad_len = length(sizeof m->aad);
      fill(m->iv, 16), fill(m->aad, m->aad_len), fill(m->plain, m->len);
      seal_piped(cipher[0], key, iv_len, m);
      memcpy(work[i], enc ? m->plain : m->sealed, m->len);
      memcpy(tag[i], m->tag, 16);
      ivs[i] = m->iv, tags[i] = tag[i], in[i] = m->aad, inl[i] = m->aad_len;
      step("  %zu and %zu bytes\n", m->aad_len, m->len);
    }
    size_t spoilt = wrong && !enc ? below(pipes) : pipes;
    if (spoilt < pipes) tag[spoilt][below(tag_len)] ^= 0x10;
    size_t key_len = EVP_CIPHER_get_key_length(cipher[0]);
    need((enc ? EVP_CipherPipelineEncryptInit : EVP_CipherPipelineDecryptInit)(
           ctx, turn ? NULL : cipher[1], is_known ? NULL : key, is_known ? 0 : key_len, pipes, ivs, iv_len),
         "a pipeline cannot be started");
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_ptr("pipeline-tag", (void **)&all_tags, tag_len), OSSL_PARAM_construct_end()};
    if (!enc && early) need(EVP_CIPHER_CTX_set_params(ctx, params), "tags are not taken");
    need(EVP_CipherPipelineUpdate(ctx, NULL, outl, NULL, in, inl), "associated data is not taken");
    for (size_t piece = 0; piece < pieces; piece++) {
      for (size_t i = 0; i < pipes; i++) {
        inl[i] = room[i] = piece + 1 == pieces ? list[i].len - at[i] : below(list[i].len - at[i] + 1);
        in[i] = work[i] + at[i], out[i] = (in_place ? work[i] : apart[i]) + at[i];
        at[i] += inl[i];
      }
      if (below(8) == 0 && piece == 0) {
        EVP_CIPHER_CTX *copy = EVP_CIPHER_CTX_new();
        need(EVP_CIPHER_CTX_copy(copy, ctx), "a pipeline cannot be copied");
        EVP_CIPHER_CTX_free(ctx), ctx = copy;
      }
      need(EVP_CipherPipelineUpdate(ctx, out, outl, room, in, inl), "text is not taken");
      for (size_t i = 0; i < pipes; i++)
        if (outl[i] != inl[i]) fail("a length");
    }
    if (!enc && !early) need(EVP_CIPHER_CTX_set_params(ctx, params), "tags are not taken");
    int ok = EVP_CipherPipelineFinal(ctx, out, outl, room);
    if (ok != (spoilt == pipes)) fail("the verdict");
    ERR_clear_error();
    if (enc) {
      memset(tag, 0xa5, sizeof tag);
      need(EVP_CIPHER_CTX_get_params(ctx, params), "tags are not given");
    }
    for (size_t i = 0; i < pipes; i++) {
      const unsigned char *got = in_place ? work[i] : apart[i];
      if (memcmp(got, enc ? list[i].sealed : list[i].plain, list[i].len)) fail("a text");
      if (enc && (memcmp(tag[i], list[i].tag, tag_len) || (tag_len < 16 && tag[i][tag_len] != 0xa5))) fail("a tag");
    }
    size_t rest = 0;
    for (size_t i = 0; i < pipes; i++) rest += inl[i];
    if (EVP_CipherPipelineUpdate(ctx, out, outl, room, in, inl) && rest) fail("text behind the end");
    ERR_clear_error();
  }
  EVP_CIPHER_CTX_free(ctx);
  EVP_CIPHER_free(cipher[0]), EVP_CIPHER_free(cipher[1]);
}

// ------------------------------------------------------------------------------------------------------------------ lists

static int is_3_0(void) { return OPENSSL_version_major() == 3 && OPENSSL_version_minor() == 0; }

// Parameters whose place in the lists depends on the version. Ours are those of 3.0 (LIMITATIONS.md, PROV-02).
static int depends_on_version(const char *key) {
  static const char *keys[] = {"iv-generated", "encrypt-then-mac", "size", "use-bits", "tls-version", "tls-mac-size",
                               "tls-mac", "tlsivgen", "tlsivinv", "digest-noinit", "digest-oneshot"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!strcmp(key, keys[i])) return !is_3_0();
  return 0;
}

// Whether every parameter of `a` is in `b` too, with its type, and with 3.0 its size: lists of 4.0 have other sizes, of which
// libcrypto takes no notice.
static int has_all(const char *who, const OSSL_PARAM *a, const OSSL_PARAM *b) {
  int all = 1;
  for (; a && a->key; a++) {
    step("%s %s %u %zu\n", who, a->key, a->data_type, a->data_size);
    // Names a key of the keeper's.
    if (!strcmp(who, "sealane") && !strcmp(a->key, "sealane-key") && a->data_type == OSSL_PARAM_UTF8_STRING) continue;
    const OSSL_PARAM *found = OSSL_PARAM_locate_const(b, a->key);
    int is_same = found && found->data_type == a->data_type && (found->data_size == a->data_size || !is_3_0());
    all &= is_same || depends_on_version(a->key);
  }
  return all;
}

// Both ways: 3.5 names two parameters of DES-EDE3-CBC twice, so that the lengths of the lists tell nothing.
static void same_list(const char *what, const OSSL_PARAM *a, const OSSL_PARAM *b) {
  int is_same = has_all("default", a, b);
  is_same &= has_all("sealane", b, a);
  if (!is_same) fail(what);
  forget_steps();
}

static void count_name(const char *name, void *list) {
  strcat(list, name);
  strcat(list, ":");
}

static void lists(void) {
  for (int k = 0; k < DIGESTS; k++) {
    begin(digests[k]);
    EVP_MD *md[2] = {EVP_MD_fetch(lib, digests[k], THEIRS), EVP_MD_fetch(lib, digests[k], OURS)};
    need(md[0] && md[1], "cannot be fetched");
    char names[2][400] = {"", ""};
    EVP_MD_names_do_all(md[0], count_name, names[0]), EVP_MD_names_do_all(md[1], count_name, names[1]);
    if (strcmp(names[0], names[1])) step("%s\n%s\n", names[0], names[1]), fail("a name");
    same_list("gettable", EVP_MD_gettable_params(md[0]), EVP_MD_gettable_params(md[1]));
    // SHA-1's is for SSL 3, which is not offered.
    if (strcmp(digests[k], "SHA1"))
      same_list("settable", EVP_MD_settable_ctx_params(md[0]), EVP_MD_settable_ctx_params(md[1]));
    // SHAKE has a length of its own with 3.0, and ours has it with every version (PROV-02).
    int is_as_long = EVP_MD_get_size(md[0]) == EVP_MD_get_size(md[1]) ||
                     (!strncmp(digests[k], "SHAKE", 5) && EVP_MD_get_size(md[0]) <= 0);
    if (!is_as_long || EVP_MD_get_block_size(md[0]) != EVP_MD_get_block_size(md[1]) ||
        EVP_MD_get_flags(md[0]) != EVP_MD_get_flags(md[1]))
      fail("a size or flag");
    EVP_MD_free(md[0]), EVP_MD_free(md[1]);
  }
  for (int k = 0; k < MACS; k++) {
    begin(macs[k].mac);
    EVP_MAC *mac[2] = {EVP_MAC_fetch(lib, macs[k].mac, THEIRS), EVP_MAC_fetch(lib, macs[k].mac, OURS)};
    need(mac[0] && mac[1], "cannot be fetched");
    same_list("gettable", EVP_MAC_gettable_params(mac[0]), EVP_MAC_gettable_params(mac[1]));
    same_list("gettable of a context", EVP_MAC_gettable_ctx_params(mac[0]), EVP_MAC_gettable_ctx_params(mac[1]));
    same_list("settable", EVP_MAC_settable_ctx_params(mac[0]), EVP_MAC_settable_ctx_params(mac[1]));
    EVP_MAC_free(mac[0]), EVP_MAC_free(mac[1]);
  }
  for (int k = 0; k < CIPHERS; k++) {
    begin(ciphers[k]);
    EVP_CIPHER *c[2] = {EVP_CIPHER_fetch(lib, ciphers[k], THEIRS), EVP_CIPHER_fetch(lib, ciphers[k], OURS)};
    need(c[0] && c[1], "cannot be fetched");
    char names[2][400] = {"", ""};
    EVP_CIPHER_names_do_all(c[0], count_name, names[0]), EVP_CIPHER_names_do_all(c[1], count_name, names[1]);
    if (strcmp(names[0], names[1])) step("%s\n%s\n", names[0], names[1]), fail("a name");
    same_list("gettable", EVP_CIPHER_gettable_params(c[0]), EVP_CIPHER_gettable_params(c[1]));
    same_list("gettable of a context", EVP_CIPHER_gettable_ctx_params(c[0]), EVP_CIPHER_gettable_ctx_params(c[1]));
    same_list("settable", EVP_CIPHER_settable_ctx_params(c[0]), EVP_CIPHER_settable_ctx_params(c[1]));
    step("flags %lx %lx\n", EVP_CIPHER_get_flags(c[0]), EVP_CIPHER_get_flags(c[1]));
    if (EVP_CIPHER_get_flags(c[0]) != EVP_CIPHER_get_flags(c[1]) ||
        EVP_CIPHER_get_key_length(c[0]) != EVP_CIPHER_get_key_length(c[1]) ||
        EVP_CIPHER_get_iv_length(c[0]) != EVP_CIPHER_get_iv_length(c[1]) ||
        EVP_CIPHER_get_block_size(c[0]) != EVP_CIPHER_get_block_size(c[1]) ||
        EVP_CIPHER_get_mode(c[0]) != EVP_CIPHER_get_mode(c[1]))
      fail("a length, mode or flag");
    EVP_CIPHER_free(c[0]), EVP_CIPHER_free(c[1]);
  }
}

// ------------------------------------------------------------------------------------- records of TLS below CBC, with MAC

// What a record is made of, and what a receiver has to find in it.
struct record {
  int version;
  size_t block, mac_len, content, padding, len;
  unsigned char bytes[2000];
};

// Text of content, MAC and `padding` + 1 bytes, behind a block for the IV from TLS 1.1 on; `extra` blocks more of content.
static void make_record(struct record *r, int version, size_t block, size_t mac_len, size_t padding, size_t extra) {
  size_t tail = mac_len + padding + 1, iv = version == 0x301 ? 0 : block;
  r->version = version, r->block = block, r->mac_len = mac_len, r->padding = padding;
  r->content = (block - tail % block) % block + extra * block;
  r->len = iv + r->content + tail;
  fill(r->bytes, r->len);
  memset(r->bytes + r->len - padding - 1, padding, padding + 1);
}

// What a receiver has to find, by a plain look at all bytes: whether the padding is good, and where MAC and content end.
static int reads(const struct record *r, size_t *content) {
  size_t iv = r->version == 0x301 ? 0 : r->block, len = r->len - iv, padding = r->bytes[r->len - 1];
  int good = len >= 1 + r->mac_len + padding;
  for (size_t i = 0; good && i <= padding; i++) good = r->bytes[r->len - 1 - i] == padding;
  *content = len - r->mac_len - (good ? padding + 1 : 0);
  return good;
}

static void set_record(EVP_CIPHER_CTX *ctx, int version, size_t mac_len) {
  OSSL_PARAM params[] = {OSSL_PARAM_construct_int("tls-version", &version),
                         OSSL_PARAM_construct_size_t("tls-mac-size", &mac_len), OSSL_PARAM_construct_end()};
  need(EVP_CIPHER_CTX_set_params(ctx, params), "does not take records of TLS");
}

// Opens a record with both, and compares with what a plain look finds.
static void open_record(struct pair *p, EVP_CIPHER_CTX *plain, const struct record *r, const unsigned char *key) {
  static unsigned char sealed[2000], decoy[2][64];
  static const unsigned char iv[16] = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 6};
  int n = 0;
  need(EVP_CipherInit_ex2(plain, NULL, key, iv, 1, NULL) && EVP_CIPHER_CTX_set_padding(plain, 0) &&
           EVP_CipherUpdate(plain, sealed, &n, r->bytes, r->len) && (size_t)n == r->len,
       "cannot be encrypted");
  size_t content, skipped = r->version == 0x301 ? 0 : r->block;
  int good = reads(r, &content);
  // Twice: a wrong padding has another MAC each time, and nothing of the record before is left.
  for (int turn = 0; turn < 2; turn++) {
    forget_steps();
    step("version %x, MAC %zu, content %zu, padding %zu, %s\n", r->version, r->mac_len, r->content, r->padding,
         good ? "good" : "bad");
    for (int i = 0; i < 2; i++) {
      memcpy(buffers[i], sealed, r->len);
      need(EVP_CipherInit_ex2(p->ctx[i], NULL, key, iv, 0, NULL), "cannot be started");
      set_record(p->ctx[i], r->version, r->mac_len);
      n = 0;
      int ok = EVP_CipherUpdate(p->ctx[i], buffers[i], &n, buffers[i], r->len);
      const char *who = i ? "sealane" : "default";
      // Without a MAC, the record was authentic before, and a wrong padding is told.
      if (ok != (good || r->mac_len > 0)) step("%s %d\n", who, ok), fail("success");
      if (!ok) {
        ERR_clear_error();
        continue;
      }
      if ((size_t)n != content) step("%s finds %d bytes\n", who, n), fail("the content's length");
      if (memcmp(buffers[i] + skipped, r->bytes + skipped, content)) step("%s\n", who), fail("the content");
      unsigned char *mac = NULL;
      OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_ptr("tls-mac", (void **)&mac, r->mac_len),
                             OSSL_PARAM_construct_end()};
      need(EVP_CIPHER_CTX_get_params(p->ctx[i], params), "does not tell the MAC");
      if (r->mac_len == 0) continue;
      need(mac != NULL, "has no MAC");
      const unsigned char *there = r->bytes + skipped + content;
      if (good && memcmp(mac, there, r->mac_len)) step("%s\n", who), fail("the MAC");
      if (!good && (!memcmp(mac, there, r->mac_len) || (turn && !memcmp(mac, decoy[i], r->mac_len))))
        step("%s\n", who), fail("the MAC in place of one that nobody knows");
      memcpy(decoy[i], mac, r->mac_len);
    }
  }
}

// All paddings, every content behind a whole number of blocks, and records that are wrong in one byte, at every place.
static void records(void) {
  static const char *names[] = {"AES-128-CBC", "AES-256-CBC", "DES-EDE3-CBC"};
  static const int versions[] = {0x301, 0x302, 0x303, 0xfeff, 0xfefd};
  static const size_t macs[] = {0, 16, 20, 32, 48, 64};
  static unsigned char key[32];
  static struct record record;
  for (int k = 0; k < 3; k++) {
    begin(names[k]);
    fill(key, sizeof key);
    struct pair pair, *p = &pair;
    fetch_pair(p, names[k]);
    for (int i = 0; i < 2; i++)
      need(EVP_CipherInit_ex2(p->ctx[i], p->cipher[i], NULL, NULL, 0, NULL), "cannot be started");
    EVP_CIPHER_CTX *plain = EVP_CIPHER_CTX_new();
    need(EVP_CipherInit_ex2(plain, p->cipher[0], NULL, NULL, 1, NULL), "cannot be fetched");
    size_t block = EVP_CIPHER_get_block_size(p->cipher[0]);
    for (int m = 0; m < 6; m++) {
      for (size_t padding = 0; padding < 256; padding++) {
        int version = versions[padding % 5];
        for (size_t extra = 0; extra < 3; extra++) {
          make_record(&record, version, block, macs[m], padding, extra * 9);
          open_record(p, plain, &record, key);
        }
      }
      // One byte is wrong, at every place; then the last byte has every value, and then all is random.
      static const size_t paddings[] = {0, 1, 7, 15, 16, 40, 255};
      for (int n = 0; n < 7; n++) {
        make_record(&record, versions[n % 5], block, macs[m], paddings[n], n % 3);
        for (size_t at = 0; at < record.len; at++) {
          record.bytes[at] ^= 1 << at % 8;
          open_record(p, plain, &record, key);
          record.bytes[at] ^= 1 << at % 8;
        }
        for (int last = 0; last < 256; last++) {
          record.bytes[record.len - 1] = last;
          open_record(p, plain, &record, key);
        }
        fill(record.bytes, record.len);
        open_record(p, plain, &record, key);
      }
      // Records that have no room for MAC and padding.
      for (size_t len = block; len < 6 * block; len += block) {
        if (len >= macs[m] + 1) continue;
        begin(names[k]);
        step("%zu bytes, MAC %zu\n", len, macs[m]);
        for (int i = 0; i < 2; i++) {
          int n = 0;
          need(EVP_CipherInit_ex2(p->ctx[i], NULL, key, key, 0, NULL), "cannot be started");
          set_record(p->ctx[i], 0x301, macs[m]);
          if (EVP_CipherUpdate(p->ctx[i], buffers[i], &n, buffers[i], len)) step("%d\n", i), fail("a record without a MAC");
          ERR_clear_error();
        }
      }
    }
    // Sealed: padding is added, whatever the length.
    for (size_t len = 0; len < 300; len++) {
      forget_steps();
      step("seal\n");
      for (int i = 0; i < 2; i++) {
        need(EVP_CipherInit_ex2(p->ctx[i], NULL, key, key, 1, NULL), "cannot be started");
        set_record(p->ctx[i], 0x303, 20);
      }
      compare_update(p, len, 1);
    }
    EVP_CIPHER_CTX_free(plain);
    free_pair(p);
  }
}

// HMAC of a record whose text ends at a secret place.
static void record_macs(void) {
  static char *digests_of_tls[] = {"MD5", "SHA1", "SHA2-224", "SHA2-256", "SHA2-384", "SHA2-512"};
  static const size_t lens[] = {16, 20, 28, 32, 48, 64};
  static unsigned char key[64], data[1200], header[13];
  for (int k = 0; k < 6; k++) {
    begin(digests_of_tls[k]);
    fill(key, sizeof key), fill(data, sizeof data), fill(header, sizeof header);
    EVP_MAC *mac[2] = {EVP_MAC_fetch(lib, "HMAC", THEIRS), EVP_MAC_fetch(lib, "HMAC", OURS)};
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("digest", digests_of_tls[k], 0), OSSL_PARAM_construct_end()};
    for (size_t total = lens[k] + 2; total < 1100; total += 1 + below(60)) {
      size_t most = total - lens[k] - 1, least = most > 255 ? most - 255 : 1;
      for (size_t len = least; len <= most; len += 1 + below(7)) {
        forget_steps();
        step("%zu of %zu bytes\n", len, total);
        unsigned char out[2][64] = {{0}};
        for (int i = 0; i < 2; i++) {
          EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac[i]);
          size_t n = 0;
          OSSL_PARAM size[] = {OSSL_PARAM_construct_size_t("tls-data-size", &total), OSSL_PARAM_construct_end()};
          need(EVP_MAC_init(ctx, key, lens[k], params) && EVP_MAC_CTX_set_params(ctx, size) &&
                   EVP_MAC_update(ctx, header, sizeof header) && EVP_MAC_update(ctx, data, len) &&
                   EVP_MAC_final(ctx, out[i], &n, sizeof out[i]) && n == lens[k],
               "cannot be computed");
          EVP_MAC_CTX_free(ctx);
        }
        if (memcmp(out[0], out[1], sizeof out[0])) fail("the MAC");
      }
    }
    // A record that nobody has.
    static size_t sizes[] = {1 << 20, (size_t)1 << 62, SIZE_MAX};
    for (int s = 0; s < 3; s++) {
      EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac[1]);
      OSSL_PARAM size[] = {OSSL_PARAM_construct_size_t("tls-data-size", &sizes[s]), OSSL_PARAM_construct_end()};
      need(EVP_MAC_init(ctx, key, lens[k], params) && EVP_MAC_CTX_set_params(ctx, size) &&
               EVP_MAC_update(ctx, header, sizeof header),
           "cannot be started");
      if (EVP_MAC_update(ctx, data, 100)) step("%zu bytes\n", sizes[s]), fail("a record of an impossible length");
      ERR_clear_error();
      EVP_MAC_CTX_free(ctx);
    }
    EVP_MAC_free(mac[0]), EVP_MAC_free(mac[1]);
  }
}

// ----------------------------------------------------------------------------------------------------- mistakes of callers

// A call that has to fail, without a defect of the provider being the reason.
static void refused(int ok, const char *what) {
  unsigned long code = ERR_peek_last_error();
  const char *reason = code ? ERR_reason_error_string(code) : "";
  if (ok > 0) fail(what);
  if (reason && strstr(reason, "defect")) step("%s\n", reason), fail(what);
  ERR_clear_error();
}

// A parameter of no type that there is.
static OSSL_PARAM of_no_type(const char *key) {
  static double value = 1.5;
  OSSL_PARAM param = OSSL_PARAM_construct_double(key, &value);
  param.data_type = 77;
  return param;
}

// CCM lists two parameters of GCM and never looks at them, as the default provider's CCM.
static int is_listed_only(const EVP_CIPHER *c, const char *key) {
  return EVP_CIPHER_get_mode(c) == EVP_CIPH_CCM_MODE && (!strcmp(key, "tlsivgen") || !strcmp(key, "tlsivinv"));
}

// What the default provider answers with a fault, if at all: no buffers, parameters of the wrong type or size, IVs that are
// too short for what is asked. Afterwards the context does what it did before.
static void misuse(void) {
  static unsigned char key[64], iv[128], text[64], out[2][128];
  fill(key, sizeof key), fill(iv, sizeof iv), fill(text, sizeof text);
  for (int k = 0; k < CIPHERS; k++) {
    begin(ciphers[k]);
    EVP_CIPHER *c = EVP_CIPHER_fetch(lib, ciphers[k], OURS);
    for (int enc = 1; enc >= 0; enc--) {
      EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
      need(c && ctx && EVP_CipherInit_ex2(ctx, c, key, iv, enc, NULL), "cannot be started");
      int n = 0, is_cts = !!(EVP_CIPHER_get_flags(c) & EVP_CIPH_FLAG_CTS), is_aead = EVP_CIPHER_get_mode(c) == 0 ||
          !!(EVP_CIPHER_get_flags(c) & EVP_CIPH_FLAG_AEAD_CIPHER);
      // For an AEAD no output means associated data, and no input the end.
      if (!is_aead && !is_cts) refused(EVP_CipherUpdate(ctx, NULL, &n, text, 32), "text without a place to go to");
      if (!is_aead) refused(EVP_CipherUpdate(ctx, out[0], &n, NULL, 32), "text that is not there");
      // Wrong types.
      char word[] = "12";
      static const char *keys[] = {"padding", "num", "ivlen", "keylen", "tag", "tlsaad", "tlsivfixed", "tlsivinv",
                                   "tls-version", "tls-mac-size", "cts_mode", "use-bits"};
      for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!OSSL_PARAM_locate_const(EVP_CIPHER_settable_ctx_params(c), keys[i])) continue;
        if (is_listed_only(c, keys[i])) continue;
        step("set %s\n", keys[i]);
        OSSL_PARAM wrong[] = {of_no_type(keys[i]), OSSL_PARAM_construct_end()};
        refused(EVP_CIPHER_CTX_set_params(ctx, wrong), "a value of no type");
        if (strcmp(keys[i], "cts_mode")) {
          OSSL_PARAM words[] = {OSSL_PARAM_construct_utf8_string(keys[i], word, 0), OSSL_PARAM_construct_end()};
          refused(EVP_CIPHER_CTX_set_params(ctx, words), "text in place of a number or bytes");
        }
      }
      static const char *asked[] = {"iv", "updated-iv", "tag", "tls-mac", "tlsivgen", "cts_mode", "keylen", "ivlen", "randkey"};
      for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        if (!OSSL_PARAM_locate_const(EVP_CIPHER_gettable_ctx_params(c), asked[i])) continue;
        if (is_listed_only(c, asked[i])) continue;
        step("get %s\n", asked[i]);
        OSSL_PARAM wrong[] = {of_no_type(asked[i]), OSSL_PARAM_construct_end()};
        // Without an IV there is nothing to tell, and nothing is written.
        if (EVP_CIPHER_get_iv_length(c) > 0 || !strstr(asked[i], "iv"))
          refused(EVP_CIPHER_CTX_get_params(ctx, wrong), "a value of no type");
      }
      // None of this was a call that changes anything.
      if (!is_aead) {
        EVP_CIPHER_CTX *fresh = EVP_CIPHER_CTX_new();
        int m = 0;
        need(EVP_CipherInit_ex2(fresh, c, key, iv, enc, NULL), "cannot be started");
        int a = EVP_CipherUpdate(ctx, out[0], &n, text, 48), b = EVP_CipherUpdate(fresh, out[1], &m, text, 48);
        if (!a || !b || n != m || memcmp(out[0], out[1], n)) fail("a context after refused calls");
        EVP_CIPHER_CTX_free(fresh);
      } else if (!enc) {
        // Text may come before its tag. Without one it has no good end.
        step("open without a tag\n");
        int taken = EVP_CipherUpdate(ctx, out[0], &n, text, 48) > 0;
        ERR_clear_error();
        refused(taken && EVP_CipherFinal_ex(ctx, out[0], &n) > 0, "an end without a tag");
      }
      EVP_CIPHER_CTX_free(ctx);
    }
    // The counter of TLS in an IV that has become too short for it.
    if (EVP_CIPHER_get_mode(c) == EVP_CIPH_GCM_MODE) {
      EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
      need(EVP_CipherInit_ex2(ctx, c, key, iv, 1, NULL) && EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_IV_FIXED, 4, iv) > 0 &&
               EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, 4, NULL) > 0,
           "takes no IV");
      refused(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_IV_GEN, 4, out[0]), "an IV without room for its counter");
      EVP_CIPHER_CTX_free(ctx);
    }
    EVP_CIPHER_free(c);
  }
}

static void misuse_of_macs(void) {
  static unsigned char text[64];
  static const char *keys[] = {"digest", "cipher", "key", "iv", "size", "xof", "custom", "tls-data-size"};
  for (int k = 0; k < MACS; k++) {
    begin(macs[k].mac);
    EVP_MAC *mac = EVP_MAC_fetch(lib, macs[k].mac, OURS);
    need(mac != NULL, "cannot be fetched");
    EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
    need(ctx != NULL, "has no context");
    refused(EVP_MAC_update(ctx, text, sizeof text), "text without a key");
    refused(EVP_MAC_init(ctx, NULL, 0, NULL) && EVP_MAC_update(ctx, text, sizeof text), "a start without a key");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
      if (!OSSL_PARAM_locate_const(EVP_MAC_settable_ctx_params(mac), keys[i])) continue;
      step("set %s\n", keys[i]);
      OSSL_PARAM wrong[] = {of_no_type(keys[i]), OSSL_PARAM_construct_end()};
      refused(EVP_MAC_CTX_set_params(ctx, wrong), "a value of no type");
    }
    EVP_MAC_CTX_free(ctx), EVP_MAC_free(mac);
  }
}

// The provider's own reasons have texts, under a number that libcrypto has chosen.
static void reasons(void) {
  begin("reasons");
  int found = 0;
  for (int library = 128; library < 256 && !found; library++) {
    const char *name = ERR_lib_error_string(ERR_PACK(library, 0, 0));
    if (!name || strcmp(name, "sealane")) continue;
    const char *text = ERR_reason_error_string(ERR_PACK(library, 0, 2));
    need(text && !strcmp(text, "defect of the provider"), "has no text");
    found = 1;
  }
  need(found, "are not known");
}

// ------------------------------------------------------------------------------------------- threads, forks and unloading

static char known[65];

static void hash_of_abc(const char *properties, char *hex) {
  unsigned char out[32];
  size_t n = 0;
  need(EVP_Q_digest(lib, "SHA2-256", properties, "abc", 3, out, &n), "SHA2-256 fails");
  for (int i = 0; i < 32; i++) sprintf(hex + 2 * i, "%02x", out[i]);
}

static void *work(void *unused) {
  char hex[65];
  for (int i = 0; i < 300; i++) {
    hash_of_abc(OURS, hex);
    if (strcmp(hex, known)) fail("a digest in a thread");
    EVP_CIPHER *c = EVP_CIPHER_fetch(lib, "AES-256-GCM", OURS);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    unsigned char key[32] = {1}, iv[12] = {2}, text[100] = {3};
    int n;
    need(EVP_EncryptInit_ex2(ctx, c, key, iv, NULL) && EVP_EncryptUpdate(ctx, text, &n, text, sizeof text) &&
             EVP_EncryptFinal_ex(ctx, text, &n),
         "AES-256-GCM fails in a thread");
    EVP_CIPHER_CTX_free(ctx), EVP_CIPHER_free(c);
  }
  return unused;
}

static void threads(void) {
  begin("threads");
  hash_of_abc(THEIRS, known);
  pthread_t all[8];
  for (int i = 0; i < 8; i++) need(!pthread_create(&all[i], NULL, work, NULL), "no thread");
  for (int i = 0; i < 8; i++) pthread_join(all[i], NULL);
}

// A child goes on with a context of its parent, while threads of the parent use the provider for the first time.
static void forks(void) {
  begin("forks");
  hash_of_abc(THEIRS, known);
  EVP_MD *md = EVP_MD_fetch(lib, "SHA2-256", OURS);
  EVP_MD_CTX *ctx = EVP_MD_CTX_new();
  need(md && EVP_DigestInit_ex2(ctx, md, NULL) && EVP_DigestUpdate(ctx, "ab", 2), "SHA2-256 fails");
  pthread_t other;
  need(!pthread_create(&other, NULL, work, NULL), "no thread");
  for (int round = 0; round < 20; round++) {
    pid_t child = fork();
    if (child == 0) {
      unsigned char out[32];
      char hex[65];
      need(EVP_DigestUpdate(ctx, "c", 1) && EVP_DigestFinal_ex(ctx, out, NULL), "a child fails");
      for (int i = 0; i < 32; i++) sprintf(hex + 2 * i, "%02x", out[i]);
      _exit(strcmp(hex, known) ? 1 : 0);
    }
    int status = 1;
    need(waitpid(child, &status, 0) == child && status == 0, "a child's digest is wrong");
  }
  pthread_join(other, NULL);
  EVP_MD_CTX_free(ctx), EVP_MD_free(md);
}

// The contexts that the provider says it has made.
static size_t made(void) {
  size_t n = 0;
  OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t("contexts", &n), OSSL_PARAM_construct_end()};
  OSSL_PROVIDER *provider = OSSL_PROVIDER_load(lib, "sealane");
  need(provider && OSSL_PROVIDER_get_params(provider, params), "does not say how many contexts it has made");
  OSSL_PROVIDER_unload(provider);
  return n;
}

// Contexts of digests are used again, and counted each time.
static void counts(void) {
  begin("counts");
  char hex[65];
  size_t before = made();
  for (int i = 0; i < 100; i++) hash_of_abc(OURS, hex);
  if (made() - before != 100) fail("the contexts of 100 digests");
}

// The provider in several library contexts at once, unloaded and loaded again.
static void loads(const char *folder, const char *configuration) {
  counts();
  begin("loads");
  hash_of_abc(THEIRS, known);
  OSSL_LIB_CTX *main_lib = lib;
  for (int round = 0; round < 5; round++) {
    OSSL_LIB_CTX *other[2];
    for (int i = 0; i < 2; i++) {
      other[i] = lib = OSSL_LIB_CTX_new();
      need(OSSL_PROVIDER_set_default_search_path(lib, folder) && OSSL_LIB_CTX_load_config(lib, configuration), "no load");
    }
    for (int i = 0; i < 2; i++) {
      char hex[65];
      lib = other[i];
      hash_of_abc(OURS, hex);
      if (strcmp(hex, known)) fail("a digest");
    }
    OSSL_LIB_CTX_free(other[0]), OSSL_LIB_CTX_free(other[1]);
  }
  lib = main_lib;
  char hex[65];
  hash_of_abc(OURS, hex);
  if (strcmp(hex, known)) fail("a digest after the others are gone");
}

int main(int argc, char **argv) {
  if (argc < 6) return 2;
  const char *folder = argv[1], *configuration = argv[2];
  seed = strtoul(argv[3], NULL, 10);
  long rounds = strtol(argv[4], NULL, 10);
  lib = OSSL_LIB_CTX_new();
  need(OSSL_PROVIDER_set_default_search_path(lib, folder) && OSSL_LIB_CTX_load_config(lib, configuration), "cannot be loaded");
  need(OSSL_PROVIDER_available(lib, "sealane"), "is not there");
  for (int i = 5; i < argc; i++) {
    if (!strcmp(argv[i], "digests"))
      for (long n = 0; n < rounds; n++) one_digest(digests[n % DIGESTS]);
    else if (!strcmp(argv[i], "macs"))
      for (long n = 0; n < rounds; n++) one_mac(&macs[n % MACS]);
    else if (!strcmp(argv[i], "ciphers"))
      for (long n = 0; n < rounds; n++) one_cipher(ciphers[n % CIPHERS]);
    else if (!strcmp(argv[i], "pipelines")) {
      // 77: this OpenSSL has none.
      if (!EVP_CipherPipelineUpdate) return 77;
      for (long n = 0; n < rounds; n++) one_pipeline();
    } else if (!strcmp(argv[i], "lists")) lists();
    else if (!strcmp(argv[i], "records")) records(), record_macs();
    else if (!strcmp(argv[i], "misuse")) misuse(), misuse_of_macs();
    else if (!strcmp(argv[i], "kept")) kept = 1;
    else if (!strcmp(argv[i], "reasons")) reasons();
    else if (!strcmp(argv[i], "threads")) threads();
    else if (!strcmp(argv[i], "forks")) forks();
    else if (!strcmp(argv[i], "loads")) loads(folder, configuration);
    else
      for (long n = 0; n < rounds; n++) one_cipher(argv[i]);
    printf("%s ok\n", argv[i]);
  }
  OSSL_LIB_CTX_free(lib);
  return 0;
}
