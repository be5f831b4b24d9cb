// Keys of the provider in guarded memory.
//   provider_guarded FOLDER CONFIGURATION search mem|read    sets keys of every cipher and MAC, and searches its own memory for them,
//                                                            as /proc/self/mem gives it or as this process itself can read it;
//                                                            with `kept` behind it: of those that the keeper computes
//   provider_guarded FOLDER CONFIGURATION fork               uses keys on both sides of a fork
//   provider_guarded FOLDER CONFIGURATION random             draws random numbers on both sides of a fork, by AES of the provider
//   provider_guarded FOLDER CONFIGURATION sandbox            sets keys where hardly a system call is allowed, in a child too
//   provider_guarded FOLDER CONFIGURATION full               sets keys until there is no room
//   provider_guarded FOLDER CONFIGURATION cost               prints the bytes that a key of each algorithm takes
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <openssl/rand.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define OURS "provider=sealane"
#define THEIRS "provider=default"

static OSSL_LIB_CTX *lib;
static const char *about = "";

static void need(int is_so, const char *what) {
  if (is_so) return;
  fprintf(stderr, "%s: %s\n", about, what);
  ERR_print_errors_fp(stderr);
  exit(1);
}

// A call that has to fail with this text of a reason.
static void refused(int done, const char *reason, const char *what) {
  int is_told = 0;
  // libcrypto may have added an error of its own.
  for (unsigned long code; !is_told && (code = ERR_peek_error()) != 0;) {
    const char *text = ERR_reason_error_string(code);
    is_told = text && !strcmp(text, reason);
    if (!is_told) ERR_get_error();
  }
  need(done <= 0 && is_told, what);
  ERR_clear_error();
}

static size_t asked(const char *name) {
  static OSSL_PROVIDER *provider;
  if (!provider) provider = OSSL_PROVIDER_load(lib, "sealane");
  size_t n = 0;
  OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(name, &n), OSSL_PARAM_construct_end()};
  need(provider && OSSL_PROVIDER_get_params(provider, params), name);
  return n;
}

// ------------------------------------------------------------------------------------------------------------------- keys

// Bytes that no generator of libcrypto has seen.
static void draw(unsigned char *at, size_t n) {
  static int fd = -1;
  if (fd < 0) fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  need(fd >= 0 && read(fd, at, n) == (ssize_t)n, "no random bytes");
}

enum { MOST_KEYS = 80, MOST_KEY = 64, WINDOW = 16, MASK = 0x5a, STACK_MASK = 0xa7 };

// The keys that were set, masked, so that this list is none of what is searched for.
static struct {
  unsigned char masked[MOST_KEY];
  size_t len;
  char name[32];
} keys[MOST_KEYS];
static size_t key_count;

// The key that is being set. It is wiped as soon as it has been.
static unsigned char key[MOST_KEY];

// The stack below a caller. Its mask is another one than that of keys: registers with a masked key may be saved there, which would
// become the key.
static unsigned char below[48 << 10];
static size_t set_traces, used_traces;

// Has the stack be as deep as is looked at.
__attribute__((noinline)) static void deepen_stack(void) {
  volatile unsigned char page[sizeof below + (8 << 10)];
  for (size_t i = 0; i < sizeof page; i++) page[i] = 0;
}

static void new_key(const char *name, size_t len) {
  need(key_count < MOST_KEYS && len <= MOST_KEY, "too many keys");
  draw(key, len);
  deepen_stack();
  for (size_t i = 0; i < len; i++) keys[key_count].masked[i] = key[i] ^ MASK;
  keys[key_count].len = len;
  snprintf(keys[key_count++].name, sizeof keys->name, "%s", name);
}

// It calls nobody, who would overwrite the stack.
__attribute__((noinline)) static void keep_stack(void) {
  const volatile unsigned char *at = (unsigned char *)__builtin_frame_address(0) - sizeof below;
  for (size_t i = 0; i < sizeof below; i++) below[i] = at[i] ^ STACK_MASK;
}

// The last key must not be on the stack.
static void look_at_stack(const char *when, size_t *count) {
  size_t last = key_count - 1, traces = 0;
  for (size_t i = 0; i + WINDOW <= sizeof below; i++)
    for (size_t from = 0; from + WINDOW <= keys[last].len; from++) {
      size_t same = 0;
      while (same < WINDOW && (below[i + same] ^ STACK_MASK ^ MASK) == keys[last].masked[from + same]) same++;
      traces += same == WINDOW;
    }
  if (traces) printf("on the stack: %s, %s, %zu places\n", keys[last].name, when, traces);
  *count += traces > 0;
}

// The key has just been set, and is wiped here.
static void key_is_set(void) {
  keep_stack();
  OPENSSL_cleanse(key, sizeof key);
  look_at_stack("set", &set_traces);
}

// The key has just been used.
static void key_is_used(void) {
  keep_stack();
  look_at_stack("used", &used_traces);
}

static const char *ciphers[] = {
    "AES-128-ECB", "AES-192-ECB", "AES-256-ECB", "AES-128-CBC", "AES-192-CBC", "AES-256-CBC", "AES-128-CTR", "AES-192-CTR",
    "AES-256-CTR", "AES-128-GCM", "AES-192-GCM", "AES-256-GCM", "AES-128-CCM", "AES-192-CCM", "AES-256-CCM",
    "AES-128-CBC-CTS", "AES-192-CBC-CTS", "AES-256-CBC-CTS", "AES-128-XTS", "AES-256-XTS", "DES-EDE3-CBC",
    "ChaCha20-Poly1305"};
enum { CIPHERS = sizeof ciphers / sizeof *ciphers };

struct mac_case {
  const char *mac, *key, *value;
  size_t key_len;
};

static const struct mac_case macs[] = {
    {"HMAC", "digest", "MD5", 16},         {"HMAC", "digest", "SHA1", 20},        {"HMAC", "digest", "SHA256", 32},
    {"HMAC", "digest", "SHA384", 48},      {"HMAC", "digest", "SHA512", 64},      {"HMAC", "digest", "SHA512-256", 32},
    {"HMAC", "digest", "SHA512-224", 28},  {"HMAC", "digest", "SHA3-256", 32},    {"HMAC", "digest", "RIPEMD-160", 20},
    {"HMAC", "digest", "SM3", 32},         {"HMAC", "digest", "BLAKE2B-512", 64}, {"HMAC", "digest", "WHIRLPOOL", 64},
    {"CMAC", "cipher", "AES-128-CBC", 16}, {"CMAC", "cipher", "AES-256-CBC", 32}, {"CMAC", "cipher", "DES-EDE3-CBC", 24},
    {"CMAC", "cipher", "CAMELLIA-256-CBC", 32}, {"CMAC", "cipher", "SM4-CBC", 16}, {"GMAC", "cipher", "AES-128-GCM", 16},
    {"GMAC", "cipher", "AES-256-GCM", 32}, {"KMAC-128", NULL, NULL, 32},          {"KMAC-256", NULL, NULL, 64},
};
enum { MACS = sizeof macs / sizeof *macs };

// Long enough for all parts of a driver's code.
enum { LONG = 4200 };

static unsigned char iv[16] = "sixteen bytes..", text[LONG], out[LONG + 100];

static EVP_CIPHER *fetched(const char *name) {
  EVP_CIPHER *cipher = EVP_CIPHER_fetch(lib, name, OURS);
  about = name;
  need(cipher != NULL, "cannot be fetched");
  return cipher;
}

// Text in pieces, with a copy of the context in between; CCM and CTS take theirs at once.
static EVP_CIPHER_CTX *use_pieces(EVP_CIPHER_CTX *ctx) {
  const EVP_CIPHER *cipher = EVP_CIPHER_CTX_get0_cipher(ctx);
  int n, mode = EVP_CIPHER_get_mode(cipher), is_ccm = mode == EVP_CIPH_CCM_MODE;
  int is_aead = !!(EVP_CIPHER_get_flags(cipher) & EVP_CIPH_FLAG_AEAD_CIPHER);
  if (is_ccm || (EVP_CIPHER_get_flags(cipher) & EVP_CIPH_FLAG_CTS)) {
    need(EVP_EncryptUpdate(ctx, out, &n, text, LONG), "takes no text");
    return ctx;
  }
  if (is_aead) need(EVP_EncryptUpdate(ctx, NULL, &n, text, 21), "takes no associated data");
  need(EVP_EncryptUpdate(ctx, out, &n, text, 37), "takes no text");
  EVP_CIPHER_CTX *copy = EVP_CIPHER_CTX_new();
  need(EVP_CIPHER_CTX_copy(copy, ctx) && EVP_EncryptUpdate(copy, out, &n, text, 250), "a copy takes no text");
  need(EVP_EncryptUpdate(ctx, out, &n, text, LONG), "takes no more text");
  EVP_CIPHER_CTX_free(ctx);
  return copy;
}

// A record of TLS 1.2 below an AEAD: the driver of whole messages.
static void use_record(EVP_CIPHER_CTX *ctx) {
  static const unsigned char header[13] = {0, 0, 0, 0, 0, 0, 0, 1, 23, 3, 3, 0, 64};
  int mode = EVP_CIPHER_get_mode(EVP_CIPHER_CTX_get0_cipher(ctx)), n;
  int is_chacha = mode == 0;
  unsigned char aad[13], record[128] = {0};
  memcpy(aad, header, sizeof aad);
  need(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_IV_FIXED, is_chacha ? 12 : 4, iv) > 0, "takes no fixed IV");
  int growth = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_TLS1_AAD, sizeof aad, aad);
  // The length in the header counts the explicit part of the IV.
  need(growth > 0 && EVP_EncryptUpdate(ctx, record, &n, record, 64 + growth), "seals no record");
}

static EVP_CIPHER_CTX *keep_cipher(const char *name, int as_record) {
  EVP_CIPHER *cipher = fetched(name);
  EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
  new_key(name, EVP_CIPHER_get_key_length(cipher));
  if (EVP_CIPHER_get_mode(cipher) == EVP_CIPH_CCM_MODE) {
    need(EVP_EncryptInit_ex2(ctx, cipher, NULL, NULL, NULL) && EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, 12, NULL) > 0,
         "takes no length of an IV");
    need(EVP_EncryptInit_ex2(ctx, NULL, key, iv, NULL), "takes no key");
  } else {
    need(EVP_EncryptInit_ex2(ctx, cipher, key, iv, NULL), "takes no key");
  }
  key_is_set();
  deepen_stack();
  if (as_record) use_record(ctx);
  else ctx = use_pieces(ctx);
  key_is_used();
  EVP_CIPHER_free(cipher);
  return ctx;
}

static EVP_MAC_CTX *start_mac(const struct mac_case *c, const unsigned char *with, size_t len) {
  about = c->value ? c->value : c->mac;
  EVP_MAC *mac = EVP_MAC_fetch(lib, c->mac, OURS);
  need(mac != NULL, "cannot be fetched");
  EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
  OSSL_PARAM params[3];
  int n = 0;
  if (c->value) params[n++] = OSSL_PARAM_construct_utf8_string(c->key, (char *)c->value, 0);
  if (!strcmp(c->mac, "GMAC")) params[n++] = OSSL_PARAM_construct_octet_string("iv", iv, 12);
  params[n] = OSSL_PARAM_construct_end();
  int done = EVP_MAC_init(ctx, with, len, params);
  EVP_MAC_free(mac);
  if (done) return ctx;
  EVP_MAC_CTX_free(ctx);
  return NULL;
}

static EVP_MAC_CTX *keep_mac(const struct mac_case *c) {
  new_key(c->value ? c->value : c->mac, c->key_len);
  EVP_MAC_CTX *ctx = start_mac(c, key, c->key_len);
  need(ctx != NULL, "takes no key");
  key_is_set();
  deepen_stack();
  need(EVP_MAC_update(ctx, text, 33), "takes no message");
  EVP_MAC_CTX *copy = EVP_MAC_CTX_dup(ctx);
  size_t n;
  need(copy && EVP_MAC_update(copy, text, LONG) && EVP_MAC_final(copy, out, &n, sizeof out), "a copy takes no message");
  key_is_used();
  EVP_MAC_CTX_free(copy);
  return ctx;
}

// HMAC of a record whose text ends at a secret place, and the record below CBC.
static EVP_MAC_CTX *keep_record_mac(void) {
  static const struct mac_case c = {"HMAC", "digest", "SHA256", 32};
  new_key("HMAC of records", c.key_len);
  EVP_MAC_CTX *ctx = start_mac(&c, key, c.key_len);
  need(ctx != NULL, "takes no key");
  key_is_set();
  size_t n, total = 200;
  OSSL_PARAM size[] = {OSSL_PARAM_construct_size_t("tls-data-size", &total), OSSL_PARAM_construct_end()};
  need(EVP_MAC_CTX_set_params(ctx, size) && EVP_MAC_update(ctx, text, 13) && EVP_MAC_update(ctx, text, 100) &&
           EVP_MAC_final(ctx, out, &n, sizeof out),
       "computes no MAC of a record");
  key_is_used();
  return ctx;
}

static EVP_CIPHER_CTX *keep_cbc_record(void) {
  EVP_CIPHER *cipher = fetched("AES-256-CBC");
  EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
  int version = 0x303, n;
  size_t mac_len = 20;
  new_key("AES-256-CBC of records", 32);
  OSSL_PARAM params[] = {OSSL_PARAM_construct_int("tls-version", &version), OSSL_PARAM_construct_size_t("tls-mac-size", &mac_len),
                         OSSL_PARAM_construct_end()};
  need(EVP_EncryptInit_ex2(ctx, cipher, key, iv, params), "takes no key");
  key_is_set();
  memcpy(out, text, 100);
  need(EVP_EncryptUpdate(ctx, out, &n, out, 100), "seals no record");
  EVP_CIPHER_free(cipher);
  return ctx;
}

// ----------------------------------------------------------------------------------------------------------------- search

// Places of three bytes (masked) with which a window begins.
static unsigned char begins[1 << 21];
static unsigned char piece[(1 << 16) + WINDOW];
static int found[MOST_KEYS];

static uint32_t three(const unsigned char *at, unsigned char mask) {
  return (uint32_t)(at[0] ^ mask) << 16 | (uint32_t)(at[1] ^ mask) << 8 | (uint32_t)(at[2] ^ mask);
}

static void look(const unsigned char *at) {
  uint32_t first = three(at, MASK);
  if (!(begins[first >> 3] >> (first & 7) & 1)) return;
  for (size_t k = 0; k < key_count; k++) {
    for (size_t from = 0; from + WINDOW <= keys[k].len; from++) {
      size_t same = 0;
      while (same < WINDOW && (at[same] ^ MASK) == keys[k].masked[from + same]) same++;
      found[k] += same == WINDOW;
    }
  }
}

// Reads as another process would, or as a write of this process's own memory does. Bytes that were read; 0: none can be.
static size_t read_at(int mem, const int *pipe_ends, unsigned char *to, uintptr_t at, size_t len) {
  if (mem >= 0) {
    ssize_t n = pread(mem, to, len, at);
    return n > 0 ? n : 0;
  }
  ssize_t n = write(pipe_ends[1], (const void *)at, len);
  if (n <= 0) return 0;
  need(read(pipe_ends[0], to, n) == n, "a pipe loses bytes");
  return n;
}

static void search(const char *how) {
  int mem = -1, ends[2] = {-1, -1};
  if (!strcmp(how, "mem")) need((mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC)) >= 0, "no /proc/self/mem");
  else need(!pipe(ends), "no pipe");
  for (size_t k = 0; k < key_count; k++)
    for (size_t from = 0; from + WINDOW <= keys[k].len; from++) {
      uint32_t first = three(keys[k].masked + from, 0);
      begins[first >> 3] |= 1 << (first & 7);
    }
  FILE *maps = fopen("/proc/self/maps", "re");
  need(maps != NULL, "no /proc/self/maps");
  size_t read_bytes = 0, unread = 0, line_len = 0;
  char *line = NULL;
  while (getline(&line, &line_len, maps) > 0) {
    uintptr_t start, end;
    char may[5];
    if (sscanf(line, "%lx-%lx %4s", &start, &end, may) != 3 || strstr(line, "[vsyscall]") || strstr(line, "[vvar")) continue;
    // Of a page that ends a piece, the last bytes come again before the next one.
    size_t kept = 0;
    for (uintptr_t at = start; at < end;) {
      size_t len = end - at < 1 << 12 ? end - at : 1 << 12;
      size_t n = read_at(mem, ends, piece + kept, at, len);
      if (n == 0) {
        unread += len, kept = 0, at += len;
        continue;
      }
      read_bytes += n, at += n;
      size_t have = kept + n;
      for (size_t i = 0; i + WINDOW <= have; i++) look(piece + i);
      kept = have < WINDOW - 1 ? have : WINDOW - 1;
      memmove(piece, piece + have - kept, kept);
    }
    // What was read is read again from this array only if it holds a key.
    OPENSSL_cleanse(piece, sizeof piece);
  }
  fclose(maps), free(line);
  need(read_bytes > 1 << 20, "reads too little of its memory");
  size_t leaked = 0;
  for (size_t k = 0; k < key_count; k++) {
    leaked += found[k] > 0;
    if (found[k]) printf("found: %s, %d places\n", keys[k].name, found[k]);
  }
  printf("%zu of %zu keys found in %zu bytes, %zu could not be read; on the stack %zu set, %zu used\n", leaked, key_count,
         read_bytes, unread, set_traces, used_traces);
}

// Whether the keeper computes it.
static int is_kept(const struct mac_case *c) { return c->value && strncmp(c->value, "SHA512-", 7); }

static void search_all(const char *how, int kept) {
  static EVP_CIPHER_CTX *all_ciphers[2 * CIPHERS + 1];
  static EVP_MAC_CTX *all_macs[MACS + 1];
  size_t n = 0;
  for (size_t i = 0; i < CIPHERS; i++) {
    all_ciphers[n++] = keep_cipher(ciphers[i], 0);
    if (strstr(ciphers[i], "GCM") || strstr(ciphers[i], "CCM") || strstr(ciphers[i], "ChaCha"))
      all_ciphers[n++] = keep_cipher(ciphers[i], 1);
  }
  all_ciphers[n++] = keep_cbc_record();
  for (size_t i = 0; i < MACS; i++)
    if (!kept || is_kept(&macs[i])) all_macs[i] = keep_mac(&macs[i]);
  if (!kept) all_macs[MACS] = keep_record_mac();
  search(how);
  // They were there all the time.
  for (size_t i = 0; i < n; i++) EVP_CIPHER_CTX_free(all_ciphers[i]);
  for (size_t i = 0; i <= MACS; i++) EVP_MAC_CTX_free(all_macs[i]);
}

// ------------------------------------------------------------------------------------------------------------------- fork

static const char *of_parent = "the key is in the guarded memory of the parent process";

// Each cipher and MAC under a key of the parent's, and under one of its own in the same context.
static void in_child(EVP_CIPHER_CTX **of_ciphers, EVP_MAC_CTX **of_macs) {
  static unsigned char own[MOST_KEY];
  int n;
  size_t len;
  // Also the generator of random numbers, whose keys are its parent's.
  need(RAND_bytes_ex(lib, own, sizeof own, 0), "no random numbers in a child");
  for (size_t i = 0; i < CIPHERS; i++) {
    about = ciphers[i];
    refused(EVP_CipherUpdate(of_ciphers[i], out, &n, text, 48), of_parent, "text under the parent's key");
    EVP_CIPHER_CTX *copy = EVP_CIPHER_CTX_new();
    // A copy of what is shared among copies is one; it computes nothing either.
    if (EVP_CIPHER_CTX_copy(copy, of_ciphers[i])) refused(EVP_CipherUpdate(copy, out, &n, text, 48), of_parent, "text in a copy");
    ERR_clear_error();
    EVP_CIPHER_CTX_free(copy);
    need(EVP_EncryptInit_ex2(of_ciphers[i], NULL, own, iv, NULL), "takes no key in a child");
    need(EVP_EncryptUpdate(of_ciphers[i], out, &n, text, 48), "takes no text in a child");
    if (i % 2) EVP_CIPHER_CTX_free(of_ciphers[i]);
  }
  for (size_t i = 0; i < MACS; i++) {
    about = macs[i].value ? macs[i].value : macs[i].mac;
    int done = EVP_MAC_update(of_macs[i], text, 48) && EVP_MAC_final(of_macs[i], out, &len, sizeof out);
    refused(done, of_parent, "a tag under the parent's key");
    EVP_MAC_CTX *copy = EVP_MAC_CTX_dup(of_macs[i]);
    if (copy) {
      done = EVP_MAC_update(copy, text, 48) && EVP_MAC_final(copy, out, &len, sizeof out);
      refused(done, of_parent, "a tag in a copy");
    }
    ERR_clear_error();
    EVP_MAC_CTX_free(copy);
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("iv", iv, 12), OSSL_PARAM_construct_end()};
    need(EVP_MAC_init(of_macs[i], own, macs[i].key_len, strcmp(macs[i].mac, "GMAC") ? NULL : params) &&
             EVP_MAC_update(of_macs[i], text, 48) && EVP_MAC_final(of_macs[i], out, &len, sizeof out),
         "takes no key in a child");
    if (i % 2) EVP_MAC_CTX_free(of_macs[i]);
  }
  about = "memory";
  need(asked("guarded-memory") > 0 && asked("guarded-memory-used") > 0, "a child has none");
}

// Texts that have begun: what is left of a block of key stream is no use to a child, and neither is a nonce that it asks for.
static const char *streams[] = {"AES-128-CTR", "AES-256-GCM", "ChaCha20-Poly1305"};
enum { STREAMS = sizeof streams / sizeof *streams };

static void begin_texts(EVP_CIPHER_CTX **begun) {
  int n;
  for (size_t i = 0; i < STREAMS; i++) {
    EVP_CIPHER *cipher = fetched(streams[i]);
    begun[i] = EVP_CIPHER_CTX_new();
    need(EVP_EncryptInit_ex2(begun[i], cipher, key, iv, NULL) && EVP_EncryptUpdate(begun[i], out, &n, text, 5), "takes no text");
    EVP_CIPHER_free(cipher);
  }
  EVP_CIPHER *cipher = fetched("AES-128-GCM");
  begun[STREAMS] = EVP_CIPHER_CTX_new();
  need(EVP_EncryptInit_ex2(begun[STREAMS], cipher, key, NULL, NULL) &&
           EVP_CIPHER_CTX_ctrl(begun[STREAMS], EVP_CTRL_GCM_SET_IV_FIXED, -1, iv) > 0,
       "takes no fixed part of nonces");
  EVP_CIPHER_free(cipher);
}

static void go_on_in_child(EVP_CIPHER_CTX **begun) {
  int n;
  for (size_t i = 0; i < STREAMS; i++) {
    about = streams[i];
    refused(EVP_EncryptUpdate(begun[i], out, &n, text, 4), of_parent, "the rest of a block in a child");
  }
  about = "AES-128-GCM";
  refused(EVP_CIPHER_CTX_ctrl(begun[STREAMS], EVP_CTRL_GCM_IV_GEN, 8, out), of_parent, "a nonce in a child");
}

static void wait_for(pid_t child) {
  int status = 1;
  need(child > 0 && waitpid(child, &status, 0) == child, "no child");
  need(status == 0, "a child has failed");
}

static void forks(void) {
  static EVP_CIPHER_CTX *of_ciphers[CIPHERS];
  static EVP_MAC_CTX *of_macs[MACS];
  unsigned char byte;
  int n;
  size_t len;
  need(RAND_bytes_ex(lib, &byte, 1, 0), "no random numbers");
  for (size_t i = 0; i < CIPHERS; i++) {
    EVP_CIPHER *cipher = fetched(ciphers[i]);
    of_ciphers[i] = EVP_CIPHER_CTX_new();
    draw(key, sizeof key);
    need(EVP_EncryptInit_ex2(of_ciphers[i], cipher, key, iv, NULL), "takes no key");
    EVP_CIPHER_free(cipher);
  }
  for (size_t i = 0; i < MACS; i++) {
    need((of_macs[i] = start_mac(&macs[i], key, macs[i].key_len)) != NULL, "takes no key");
  }
  static EVP_CIPHER_CTX *begun[STREAMS + 1];
  begin_texts(begun);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    in_child(of_ciphers, of_macs);
    go_on_in_child(begun);
    // A grandchild has the keys of neither.
    child = fork();
    if (child == 0) {
      // Those that the child has not freed.
      for (size_t i = 0; i < CIPHERS; i += 2) {
        about = ciphers[i];
        refused(EVP_CipherUpdate(of_ciphers[i], out, &n, text, 48), of_parent, "text under a grandparent's key");
      }
      _exit(0);
    }
    wait_for(child);
    _exit(0);
  }
  wait_for(child);
  // The parent goes on.
  for (size_t i = 0; i <= STREAMS; i++) EVP_CIPHER_CTX_free(begun[i]);
  for (size_t i = 0; i < CIPHERS; i++) {
    about = ciphers[i];
    need(EVP_EncryptUpdate(of_ciphers[i], out, &n, text, 48), "the parent's key is lost");
    EVP_CIPHER_CTX_free(of_ciphers[i]);
  }
  for (size_t i = 0; i < MACS; i++) {
    about = macs[i].value ? macs[i].value : macs[i].mac;
    need(EVP_MAC_update(of_macs[i], text, 48) && EVP_MAC_final(of_macs[i], out, &len, sizeof out), "the parent's key is lost");
    EVP_MAC_CTX_free(of_macs[i]);
  }
  printf("forks ok\n");
}

// OpenSSL's generator in a child goes on from the state of its parent's, which has keys of the provider.
static void random_numbers(void) {
  unsigned char drawn[2][32];
  about = "random numbers";
  // OpenSSL 3.5 and later do not ask for the generator's cipher by the default properties.
  need(EVP_set_default_properties(lib, "?provider=sealane") && RAND_set_DRBG_type(lib, NULL, "?provider=sealane", NULL, NULL),
       "the provider cannot be preferred");
  need(RAND_bytes_ex(lib, drawn[0], 32, 0) && RAND_priv_bytes_ex(lib, drawn[0], 32, 0), "none in the parent");
  need(asked("contexts") > 0 && asked("guarded-memory-used") > 0, "are not by AES of the provider");
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    need(RAND_bytes_ex(lib, drawn[1], 32, 0) && RAND_priv_bytes_ex(lib, drawn[1], 32, 0), "none in the child");
    need(memcmp(drawn[0], drawn[1], 32), "are those of the parent");
    child = fork();
    if (child == 0) {
      need(RAND_bytes_ex(lib, drawn[1], 32, 0) && RAND_priv_bytes_ex(lib, drawn[1], 32, 0), "none in the grandchild");
      _exit(0);
    }
    wait_for(child);
    _exit(0);
  }
  wait_for(child);
  need(RAND_bytes_ex(lib, drawn[0], 32, 0) && RAND_priv_bytes_ex(lib, drawn[0], 32, 0), "no more in the parent");
  printf("random ok\n");
}

// ---------------------------------------------------------------------------------------------------------------- sandbox

// From here on this process may read and write what is open, draw random numbers, and do what the heap of the C library needs.
static void enter_sandbox(void) {
  static const unsigned calls[] = {SYS_read, SYS_write, SYS_getrandom, SYS_brk, SYS_mmap, SYS_munmap,
                                   SYS_mremap, SYS_madvise, SYS_futex, SYS_exit_group};
  struct sock_filter filter[32] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  unsigned short len = 1;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    filter[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
    filter[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  filter[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  struct sock_fprog program = {len, filter};
  need(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), "no sandbox");
}

static void all_keys(void) {
  for (size_t i = 0; i < CIPHERS; i++) EVP_CIPHER_CTX_free(keep_cipher(ciphers[i], 0));
  for (size_t i = 0; i < MACS; i++) EVP_MAC_CTX_free(keep_mac(&macs[i]));
  EVP_CIPHER_CTX_free(keep_cipher("AES-256-GCM", 1)), EVP_MAC_CTX_free(keep_record_mac());
  key_count = 0;
  need(asked("guarded-memory-used") == 0 && asked("guarded-memory") > 0, "keys are elsewhere, or left");
}

static void sandbox(void) {
  // What is opened once has been opened before: the file of random bytes, libcrypto's configuration, the provider for questions.
  draw(key, 1), OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL), asked("contexts");
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    enter_sandbox();
    all_keys();
    _exit(0);
  }
  wait_for(child);
  enter_sandbox();
  all_keys();
  static const char text[] = "sandbox ok\n";
  need(write(1, text, sizeof text - 1) > 0, "no output");
  _exit(0);
}

// ------------------------------------------------------------------------------------------------------------------- full

enum { MANY = 100000 };
static const char *full = "guarded memory is full";

static void fill_up(void) {
  static void *held[MANY];
  size_t before = asked("guarded-memory-used"), counts[2];
  for (int turn = 0; turn < 2; turn++) {
    EVP_CIPHER *cipher = fetched("AES-256-GCM");
    size_t n = 0;
    for (;; n++) {
      need(n < MANY, "is never full");
      EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
      draw(key, 32);
      if (!EVP_EncryptInit_ex2(ctx, cipher, key, iv, NULL)) {
        refused(0, full, "a key beyond the memory");
        EVP_CIPHER_CTX_free(ctx);
        break;
      }
      held[n] = ctx;
    }
    counts[turn] = n;
    // Copies, and algorithms that nobody has used before, have no room either; a key that is there works.
    int len;
    EVP_CIPHER_CTX *copy = EVP_CIPHER_CTX_new();
    refused(EVP_CIPHER_CTX_copy(copy, held[0]), full, "a copy beyond the memory");
    EVP_CIPHER_CTX_free(copy);
    for (size_t i = 0; i < MACS; i++) {
      // Small ones may find room, until there is none.
      EVP_MAC_CTX *ctx;
      for (int some = 0; (ctx = start_mac(&macs[i], key, macs[i].key_len)) != NULL; some++) {
        size_t tag_len;
        int done = EVP_MAC_update(ctx, text, 100) && EVP_MAC_final(ctx, out, &tag_len, sizeof out);
        if (!done) refused(0, full, "a message beyond the memory");
        need(n < MANY, "is never full");
        if (some == 3) {
          EVP_MAC_CTX_free(ctx);
          break;
        }
        EVP_MAC_CTX_free(ctx);
      }
      if (!ctx) refused(0, full, "a MAC beyond the memory");
    }
    about = "AES-256-GCM";
    need(EVP_EncryptUpdate(held[0], out, &len, text, 100), "a key that is there does not work");
    while (n > 0) EVP_CIPHER_CTX_free(held[--n]);
    EVP_CIPHER_free(cipher);
    // All that had no room before has some now.
    for (size_t i = 0; i < CIPHERS; i++) EVP_CIPHER_CTX_free(keep_cipher(ciphers[i], 0));
    for (size_t i = 0; i < MACS; i++) EVP_MAC_CTX_free(keep_mac(&macs[i]));
    key_count = 0;
  }
  about = "memory";
  need(counts[0] > 10 && counts[0] == counts[1], "does not come back");
  need(asked("guarded-memory-used") == before, "is not given back");
  printf("full ok: %zu keys in %zu bytes\n", counts[0], asked("guarded-memory"));
}

// ------------------------------------------------------------------------------------------------------------------- cost

static void costs(void) {
  for (size_t i = 0; i < CIPHERS; i++) {
    EVP_CIPHER *cipher = fetched(ciphers[i]);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    // The first key has the drivers tested.
    draw(key, sizeof key);
    need(EVP_EncryptInit_ex2(ctx, cipher, key, iv, NULL), "takes no key");
    EVP_CIPHER_CTX_free(ctx);
    size_t before = asked("guarded-memory-used");
    ctx = EVP_CIPHER_CTX_new();
    need(EVP_EncryptInit_ex2(ctx, cipher, key, iv, NULL), "takes no key");
    size_t used = asked("guarded-memory-used") - before;
    need(used > 0, "takes no guarded memory");
    printf("%s %zu", ciphers[i], used);
    if (strstr(ciphers[i], "GCM")) {
      use_record(ctx);
      printf(", with records %zu", asked("guarded-memory-used") - before);
    }
    printf("\n");
    EVP_CIPHER_CTX_free(ctx), EVP_CIPHER_free(cipher);
    need(asked("guarded-memory-used") == before, "is not given back");
  }
  for (size_t i = 0; i < MACS; i++) {
    EVP_MAC_CTX_free(start_mac(&macs[i], key, macs[i].key_len));
    size_t before = asked("guarded-memory-used");
    EVP_MAC_CTX *ctx = start_mac(&macs[i], key, macs[i].key_len);
    size_t used = asked("guarded-memory-used") - before;
    need(ctx && used > 0, "takes no guarded memory");
    printf("%s %s %zu\n", macs[i].mac, macs[i].value ? macs[i].value : "", used);
    EVP_MAC_CTX_free(ctx);
    need(asked("guarded-memory-used") == before, "is not given back");
  }
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  for (size_t i = 0; i < sizeof text; i++) text[i] = i * 7;
  lib = OSSL_LIB_CTX_new();
  need(OSSL_PROVIDER_set_default_search_path(lib, argv[1]) && OSSL_LIB_CTX_load_config(lib, argv[2]), "cannot be loaded");
  need(OSSL_PROVIDER_available(lib, "sealane"), "is not there");
  if (!strcmp(argv[3], "search") && argc >= 5) search_all(argv[4], argc == 6 && !strcmp(argv[5], "kept"));
  else if (!strcmp(argv[3], "fork")) forks();
  else if (!strcmp(argv[3], "random")) random_numbers();
  else if (!strcmp(argv[3], "sandbox")) sandbox();
  else if (!strcmp(argv[3], "full")) fill_up();
  else if (!strcmp(argv[3], "cost")) costs();
  else return 2;
  return 0;
}
