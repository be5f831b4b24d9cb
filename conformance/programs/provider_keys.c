// Uses keys of a keeper by OpenSSL's store, in all situations in which a program may be.
//   provider_keys FOLDER CONFIGURATION KEYS WHAT...
// FOLDER has sealane.so, CONFIGURATION loads it beside `default`, KEYS has the public parts of the keeper's keys rsa, ec and ed, as
// rsa.pub and so on, and its socket. WHAT: parts, lists, ciphers, texts, contexts, threads, forks, closed, signals, loads, lazy,
// confined, users (by root); named, begun, opaque, opaque-kept (with the symmetric keys of `provider_symmetric.rs`); early, confined-early (where CONFIGURATION connects at load); or asked, storm, crowd, symmetric, which read lines:
// a keeper is ended, stopped and started again meanwhile.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/provider.h>
#include <openssl/rsa.h>
#include <openssl/store.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *folder, *configuration, *keys;
static OSSL_LIB_CTX *lib, *clean;
static const char *const names[] = {"rsa", "ec", "ed"};
enum { KEYS = 3 };

static void fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "FAIL ");
  vfprintf(stderr, format, args);
  fprintf(stderr, "\n");
  va_end(args);
  ERR_print_errors_fp(stderr);
  exit(1);
}

#define CHECK(what, ...) ((what) ? (void)0 : fail(__VA_ARGS__))

static OSSL_LIB_CTX *load(void) {
  OSSL_LIB_CTX *made = OSSL_LIB_CTX_new();
  CHECK(made && OSSL_PROVIDER_set_default_search_path(made, folder) && OSSL_LIB_CTX_load_config(made, configuration), "a library context");
  CHECK(OSSL_PROVIDER_available(made, "sealane"), "the provider is loaded");
  return made;
}

static EVP_PKEY *stored(OSSL_LIB_CTX *in, const char *name) {
  char uri[100];
  snprintf(uri, sizeof uri, "sealane://%s", name);
  OSSL_STORE_CTX *store = OSSL_STORE_open_ex(uri, in, NULL, NULL, NULL, NULL, NULL, NULL);
  if (store == NULL) return NULL;
  EVP_PKEY *key = NULL;
  while (!OSSL_STORE_eof(store)) {
    OSSL_STORE_INFO *info = OSSL_STORE_load(store);
    if (info && OSSL_STORE_INFO_get_type(info) == OSSL_STORE_INFO_PKEY) key = OSSL_STORE_INFO_get1_PKEY(info);
    OSSL_STORE_INFO_free(info);
  }
  OSSL_STORE_close(store);
  return key;
}

static EVP_PKEY *ours(const char *name) {
  EVP_PKEY *key = stored(lib, name);
  CHECK(key, "sealane://%s", name);
  return key;
}

static EVP_PKEY *theirs(const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.pub", keys, name);
  BIO *file = BIO_new_file(path, "r");
  CHECK(file, "%s", path);
  EVP_PKEY *key = PEM_read_bio_PUBKEY_ex(file, NULL, NULL, NULL, clean, NULL);
  CHECK(key, "%s is a public key", path);
  BIO_free(file);
  return key;
}

// libcrypto's own locks stay as they are in a child, and nobody opens there what another thread had closed. So where a program forks
// beside threads, these are inside libcrypto only while they have this lock, and without it while they wait for the keeper.
static pthread_mutex_t inside = PTHREAD_MUTEX_INITIALIZER;
static __thread int has_lock;

// Signs a message; 0 with errors in the queue.
static int sign(OSSL_LIB_CTX *in, EVP_PKEY *key, const unsigned char *text, size_t len, unsigned char *out, size_t *out_len) {
  EVP_MD_CTX *ctx = EVP_MD_CTX_new();
  const char *digest = EVP_PKEY_is_a(key, "ED25519") ? NULL : "SHA256";
  int done = EVP_DigestSignInit_ex(ctx, NULL, digest, in, NULL, key, NULL) == 1;
  if (has_lock) pthread_mutex_unlock(&inside);
  done = done && EVP_DigestSign(ctx, out, out_len, text, len) == 1;
  if (has_lock) pthread_mutex_lock(&inside);
  EVP_MD_CTX_free(ctx);
  return done;
}

static int verify(OSSL_LIB_CTX *in, EVP_PKEY *key, const unsigned char *text, size_t len, const unsigned char *made, size_t made_len) {
  EVP_MD_CTX *ctx = EVP_MD_CTX_new();
  const char *digest = EVP_PKEY_is_a(key, "ED25519") ? NULL : "SHA256";
  int right = EVP_DigestVerifyInit_ex(ctx, NULL, digest, in, NULL, key, NULL) == 1 && EVP_DigestVerify(ctx, made, made_len, text, len) == 1;
  EVP_MD_CTX_free(ctx);
  return right;
}

// Signs a message of its own each time, and checks it with OpenSSL's own provider; 0 where it was not signed.
static int round_trip(OSSL_LIB_CTX *in, EVP_PKEY *our, EVP_PKEY *their) {
  static unsigned counter;
  unsigned char text[64], made[1024];
  size_t made_len = sizeof made;
  int len = snprintf((char *)text, sizeof text, "%d %lx %u", getpid(), (unsigned long)pthread_self(), __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED));
  if (!sign(in, our, text, len, made, &made_len)) return 0;
  CHECK(verify(clean, their, text, len, made, made_len), "a signature of another message");
  return 1;
}

// The sockets of this process, as inodes.
static int sockets(unsigned long long *inodes, int most) {
  int count = 0;
  DIR *all = opendir("/proc/self/fd");
  for (struct dirent *one; (one = readdir(all));) {
    int fd = atoi(one->d_name);
    struct stat about;
    if (one->d_name[0] == '.' || fstat(fd, &about) || !S_ISSOCK(about.st_mode) || fd < 3) continue;
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC, "descriptor %d stays open in the next program", fd);
    if (count < most) inodes[count] = about.st_ino;
    count++;
  }
  closedir(all);
  return count;
}

static void parts(void) {
  for (int i = 0; i < KEYS; i++) {
    EVP_PKEY *our = ours(names[i]), *their = theirs(names[i]), *other = theirs(names[(i + 1) % KEYS]);
    CHECK(EVP_PKEY_eq(our, their) == 1 && EVP_PKEY_eq(their, our) == 1, "%s is equal to its public part", names[i]);
    CHECK(EVP_PKEY_eq(our, other) != 1, "%s is not equal to another key", names[i]);
    CHECK(EVP_PKEY_get_bits(our) == EVP_PKEY_get_bits(their), "bits of %s", names[i]);
    CHECK(EVP_PKEY_get_security_bits(our) == EVP_PKEY_get_security_bits(their), "strength of %s", names[i]);
    CHECK(EVP_PKEY_get_size(our) == EVP_PKEY_get_size(their), "length of signatures of %s", names[i]);
    CHECK(EVP_PKEY_get_base_id(our) == EVP_PKEY_get_base_id(their), "type of %s", names[i]);
    char our_digest[80] = "", their_digest[80] = "";
    CHECK(EVP_PKEY_get_default_digest_name(our, our_digest, 80) == EVP_PKEY_get_default_digest_name(their, their_digest, 80) &&
          strcmp(our_digest, their_digest) == 0, "digest of %s: %s and %s", names[i], our_digest, their_digest);
    char group[80] = "", other_group[80] = "";
    size_t len;
    CHECK(EVP_PKEY_get_group_name(our, group, 80, &len) == EVP_PKEY_get_group_name(their, other_group, 80, &len) &&
          strcmp(group, other_group) == 0, "group of %s", names[i]);
    unsigned char *der = NULL, *other_der = NULL;
    int der_len = i2d_PUBKEY(our, &der);
    CHECK(der_len > 0 && der_len == i2d_PUBKEY(their, &other_der) && memcmp(der, other_der, der_len) == 0, "DER of %s", names[i]);
    // The numbers, one by one.
    static const char *const numbers[] = {"n", "e", "qx", "qy"};
    for (unsigned j = 0; j < 4; j++) {
      BIGNUM *one = NULL, *two = NULL;
      int has = EVP_PKEY_get_bn_param(our, numbers[j], &one);
      CHECK(has == EVP_PKEY_get_bn_param(their, numbers[j], &two) && (!has || BN_cmp(one, two) == 0), "%s of %s", numbers[j], names[i]);
      BN_free(one), BN_free(two);
    }
    // Nothing of the private part, by any way.
    BIGNUM *secret = NULL;
    unsigned char raw[200];
    size_t raw_len = sizeof raw;
    OSSL_PARAM *all = NULL;
    CHECK(!EVP_PKEY_get_bn_param(our, "d", &secret) && !EVP_PKEY_get_bn_param(our, "priv", &secret), "a secret number of %s", names[i]);
    CHECK(!EVP_PKEY_get_bn_param(our, "rsa-factor1", &secret), "a factor of %s", names[i]);
    CHECK(!EVP_PKEY_get_raw_private_key(our, raw, &raw_len) && !EVP_PKEY_get_octet_string_param(our, "priv", raw, sizeof raw, &raw_len), "the secret of %s", names[i]);
    CHECK(!EVP_PKEY_todata(our, EVP_PKEY_KEYPAIR, &all), "%s as data", names[i]);
    CHECK(EVP_PKEY_todata(our, EVP_PKEY_PUBLIC_KEY, &all), "the public part of %s as data", names[i]);
    CHECK(!OSSL_PARAM_locate(all, "d") && !OSSL_PARAM_locate(all, "priv"), "no secret in the data of %s", names[i]);
    OSSL_PARAM_free(all);
    unsigned char *pkcs8 = NULL;
    CHECK(i2d_PrivateKey(our, &pkcs8) <= 0, "%s as PKCS #8", names[i]);
    // Checks, copies, and signatures of a copy.
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(lib, our, NULL);
    CHECK(EVP_PKEY_check(ctx) == 1 && EVP_PKEY_public_check(ctx) == 1 && EVP_PKEY_private_check(ctx) == 1, "checks of %s", names[i]);
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY *copy = EVP_PKEY_dup(our);
    CHECK(copy && round_trip(lib, copy, their), "a copy of %s signs", names[i]);
    unsigned char text[] = "text", made[1024];
    size_t made_len = sizeof made;
    CHECK(sign(lib, our, text, 4, made, &made_len) && verify(lib, our, text, 4, made, made_len), "%s checks its signature", names[i]);
    made[made_len / 2] ^= 1;
    CHECK(!verify(lib, our, text, 4, made, made_len), "%s checks another signature", names[i]);
    // A public part of ours signs nothing.
    char uri[100];
    snprintf(uri, sizeof uri, "sealane://%s", names[i]);
    OSSL_STORE_CTX *store = OSSL_STORE_open_ex(uri, lib, NULL, NULL, NULL, NULL, NULL, NULL);
    CHECK(store && OSSL_STORE_expect(store, OSSL_STORE_INFO_PUBKEY), "%s is expected to be public", names[i]);
    OSSL_STORE_INFO *info = OSSL_STORE_load(store);
    CHECK(info && OSSL_STORE_INFO_get_type(info) == OSSL_STORE_INFO_PUBKEY, "%s is public", names[i]);
    EVP_PKEY *public = OSSL_STORE_INFO_get0_PUBKEY(info);
    CHECK(!round_trip(lib, public, their), "a public part of %s signs", names[i]);
    // Other providers take it: theirs are preferred here.
    for (int j = 0; j < 2; j++) {
      EVP_MD_CTX *check = EVP_MD_CTX_new();
      EVP_PKEY_CTX *of_key = NULL;
      CHECK(EVP_DigestVerifyInit_ex(check, &of_key, i == 2 ? NULL : "SHA256", lib, NULL, j ? our : public, NULL) == 1, "%s is checked", names[i]);
      const char *by = OSSL_PROVIDER_get0_name(EVP_PKEY_CTX_get0_provider(of_key));
      CHECK(strcmp(by, j ? "sealane" : "default") == 0, "%s is checked by %s", names[i], by);
      EVP_MD_CTX_free(check);
    }
    OSSL_STORE_INFO_free(info);
    OSSL_STORE_close(store);
    store = OSSL_STORE_open_ex(uri, lib, NULL, NULL, NULL, NULL, NULL, NULL);
    CHECK(store && OSSL_STORE_expect(store, OSSL_STORE_INFO_CERT) && OSSL_STORE_eof(store), "%s is no certificate", names[i]);
    OSSL_STORE_close(store);
    EVP_PKEY_free(copy), EVP_PKEY_free(our), EVP_PKEY_free(their), EVP_PKEY_free(other);
    OPENSSL_free(der), OPENSSL_free(other_der);
    ERR_clear_error();
  }
}

// Each name in a list of ours is in that of the default provider, with the same type.
static void listed(const char *what, const OSSL_PARAM *our, const OSSL_PARAM *their) {
  CHECK((our == NULL) == (their == NULL), "a list of %s", what);
  for (; our && our->key; our++) {
    const OSSL_PARAM *same = OSSL_PARAM_locate_const(their, our->key);
    CHECK(same && same->data_type == our->data_type, "%s in %s", our->key, what);
  }
}

static void lists(void) {
  static const char *const types[] = {"RSA", "EC", "ED25519"}, *const signatures[] = {"RSA", "ECDSA", "ED25519"};
  for (int i = 0; i < KEYS; i++) {
    EVP_KEYMGMT *our = EVP_KEYMGMT_fetch(lib, types[i], "provider=sealane-keys"), *their = EVP_KEYMGMT_fetch(lib, types[i], NULL);
    CHECK(our && strcmp(OSSL_PROVIDER_get0_name(EVP_KEYMGMT_get0_provider(our)), "sealane") == 0, "keys of %s", types[i]);
    CHECK(their && strcmp(OSSL_PROVIDER_get0_name(EVP_KEYMGMT_get0_provider(their)), "default") == 0, "keys of %s are the default provider's", types[i]);
    listed(types[i], EVP_KEYMGMT_gettable_params(our), EVP_KEYMGMT_gettable_params(their));
    EVP_KEYMGMT_free(our), EVP_KEYMGMT_free(their);
    EVP_SIGNATURE *our_sig = EVP_SIGNATURE_fetch(lib, signatures[i], "provider=sealane-keys"), *their_sig = EVP_SIGNATURE_fetch(lib, signatures[i], NULL);
    CHECK(our_sig && their_sig && strcmp(OSSL_PROVIDER_get0_name(EVP_SIGNATURE_get0_provider(their_sig)), "default") == 0, "signatures of %s", types[i]);
    listed(signatures[i], EVP_SIGNATURE_gettable_ctx_params(our_sig), EVP_SIGNATURE_gettable_ctx_params(their_sig));
    if (i != 2) listed(signatures[i], EVP_SIGNATURE_settable_ctx_params(our_sig), EVP_SIGNATURE_settable_ctx_params(their_sig));
    EVP_SIGNATURE_free(our_sig), EVP_SIGNATURE_free(their_sig);
  }
  CHECK(!EVP_KEYMGMT_fetch(lib, "RSA", "provider=sealane"), "keys are not what ?provider=sealane prefers");
  ERR_clear_error();
}

static void texts(void) {
  EVP_PKEY *our = ours("rsa"), *their = theirs("rsa");
  unsigned char text[48] = {3, 3, 7}, sealed[1024], opened[1024];
  // No label has no address, as the default provider's.
  for (int i = 0; i < 2; i++) {
    EVP_PKEY_CTX *ctx = i ? EVP_PKEY_CTX_new_from_pkey(lib, our, NULL) : EVP_PKEY_CTX_new_from_pkey(clean, their, NULL);
    unsigned char *label = text;
    CHECK(EVP_PKEY_encrypt_init(ctx) == 1 && EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1, "OAEP");
    CHECK(EVP_PKEY_CTX_get0_rsa_oaep_label(ctx, &label) == 0 && label == NULL, "the label of %s", i ? "ours" : "theirs");
    EVP_PKEY_CTX_free(ctx);
  }
  for (int way = 0; way < 6; way++) {
    // Who encrypts: OpenSSL's own provider, or ours by the public part.
    EVP_PKEY_CTX *to = way & 1 ? EVP_PKEY_CTX_new_from_pkey(lib, our, NULL) : EVP_PKEY_CTX_new_from_pkey(clean, their, NULL);
    EVP_PKEY_CTX *from = EVP_PKEY_CTX_new_from_pkey(lib, our, NULL);
    CHECK(EVP_PKEY_encrypt_init(to) == 1 && EVP_PKEY_decrypt_init(from) == 1, "way %d begins", way);
    for (int end = 0; end < 2; end++) {
      EVP_PKEY_CTX *ctx = end ? from : to;
      if (way >= 2) {
        CHECK(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) == 1, "OAEP");
        EVP_MD *sha256 = EVP_MD_fetch(clean, "SHA256", NULL), *sha1 = EVP_MD_fetch(clean, "SHA1", NULL);
        if (way >= 4) {
          CHECK(EVP_PKEY_CTX_set_rsa_oaep_md(ctx, sha256) == 1 && EVP_PKEY_CTX_set_rsa_mgf1_md(ctx, sha1) == 1, "digests of OAEP");
          CHECK(EVP_PKEY_CTX_set0_rsa_oaep_label(ctx, OPENSSL_strdup("label"), 5) == 1, "a label");
        }
        EVP_MD_free(sha256), EVP_MD_free(sha1);
      }
    }
    size_t sealed_len = sizeof sealed, opened_len = sizeof opened;
    CHECK(EVP_PKEY_encrypt(to, sealed, &sealed_len, text, sizeof text) == 1, "way %d encrypts", way);
    CHECK(EVP_PKEY_decrypt(from, opened, &opened_len, sealed, sealed_len) == 1 && opened_len == sizeof text && memcmp(opened, text, sizeof text) == 0, "way %d decrypts", way);
    // Some programs take zeros at the beginning away: a sealed text is a number. One of 256 has one.
    unsigned char number[1024];
    size_t number_len;
    do {
      number_len = sizeof number;
      CHECK(EVP_PKEY_encrypt(to, number, &number_len, text, sizeof text) == 1, "way %d encrypts again", way);
    } while (number[0] != 0);
    opened_len = sizeof opened;
    CHECK(EVP_PKEY_decrypt(from, opened, &opened_len, number + 1, number_len - 1) == 1 && opened_len == sizeof text && memcmp(opened, text, sizeof text) == 0, "way %d decrypts a number without its zero", way);
    CHECK(EVP_PKEY_decrypt(from, opened, &opened_len, number, number_len + 1) != 1, "way %d decrypts a longer text", way);
    opened_len = 10;
    CHECK(EVP_PKEY_decrypt(from, opened, &opened_len, sealed, sealed_len) != 1, "way %d has room", way);
    sealed[sealed_len - 1] ^= 1;
    opened_len = sizeof opened;
    int done = EVP_PKEY_decrypt(from, opened, &opened_len, sealed, sealed_len);
    if (way < 2) {
      // A wrong padding is no error, and the same text comes twice: nobody learns that it is wrong.
      unsigned char again[1024];
      size_t again_len = sizeof again;
      CHECK(done == 1 && (opened_len != sizeof text || memcmp(opened, text, sizeof text)), "a wrong text comes out");
      CHECK(EVP_PKEY_decrypt(from, again, &again_len, sealed, sealed_len) == 1 && again_len == opened_len && memcmp(again, opened, again_len) == 0, "and comes twice");
    } else {
      CHECK(done != 1, "way %d refuses", way);
    }
    EVP_PKEY_CTX_free(to), EVP_PKEY_CTX_free(from);
    ERR_clear_error();
  }
  // The premaster secret of TLS: the right one, or a random one for a wrong version or padding.
  for (int wrong = 0; wrong < 3; wrong++) {
    EVP_PKEY_CTX *to = EVP_PKEY_CTX_new_from_pkey(clean, their, NULL), *from = EVP_PKEY_CTX_new_from_pkey(lib, our, NULL);
    unsigned version = wrong == 1 ? 0x0302 : 0x0303;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_uint(OSSL_ASYM_CIPHER_PARAM_TLS_CLIENT_VERSION, &version), OSSL_PARAM_construct_end()};
    size_t sealed_len = sizeof sealed, opened_len = 48;
    CHECK(EVP_PKEY_encrypt_init(to) == 1 && EVP_PKEY_encrypt(to, sealed, &sealed_len, text, 48) == 1, "a premaster secret");
    if (wrong == 2) sealed[9] ^= 1;
    CHECK(EVP_PKEY_decrypt_init(from) == 1 && EVP_PKEY_CTX_set_rsa_padding(from, RSA_PKCS1_WITH_TLS_PADDING) == 1 && EVP_PKEY_CTX_set_params(from, params) == 1, "TLS");
    CHECK(EVP_PKEY_decrypt(from, opened, &opened_len, sealed, sealed_len) == 1 && opened_len == 48, "a premaster secret comes out");
    CHECK((memcmp(opened, text, 48) != 0) == (wrong != 0), "the premaster secret with mistake %d", wrong);
    EVP_PKEY_CTX_free(to), EVP_PKEY_CTX_free(from);
  }
  EVP_PKEY_free(our), EVP_PKEY_free(their);
}

// Whether a message is signed with this context.
static int has_context(EVP_PKEY *key, const char *context) {
  OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string("context-string", (void *)context, strlen(context)), OSSL_PARAM_construct_end()};
  EVP_MD_CTX *ctx = EVP_MD_CTX_new();
  EVP_PKEY_CTX *of_key = NULL;
  unsigned char made[64];
  size_t len = sizeof made;
  CHECK(EVP_DigestSignInit_ex(ctx, &of_key, NULL, lib, NULL, key, NULL) == 1, "a message");
  int done = EVP_PKEY_CTX_set_params(of_key, params) == 1 && EVP_DigestSign(ctx, made, &len, (const unsigned char *)"text", 4) == 1;
  EVP_MD_CTX_free(ctx);
  return done;
}

// A context of Ed25519 is never left out in silence.
static void contexts(void) {
  EVP_PKEY *key = ours("ed");
  CHECK(has_context(key, ""), "no context");
  CHECK(!has_context(key, "context"), "a context is ignored");
  EVP_PKEY_free(key);
  ERR_clear_error();
}

static void ciphers(void) {
  unsigned char key[16] = {0}, out[64];
  int len;
  for (int i = 0; i < 100; i++) {
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(lib, "AES-128-CBC", "provider=sealane");
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    CHECK(cipher && EVP_EncryptInit_ex2(ctx, cipher, key, key, NULL) == 1 && EVP_EncryptUpdate(ctx, out, &len, key, 16) == 1, "a cipher");
    EVP_CIPHER_CTX_free(ctx);
    EVP_CIPHER_free(cipher);
  }
}

static EVP_PKEY *all_ours[KEYS], *all_theirs[KEYS];

static void with_all(void) {
  for (int i = 0; i < KEYS; i++) all_ours[i] = ours(names[i]), all_theirs[i] = theirs(names[i]);
}

// No connection without a key.
static void lazy(void) {
  ciphers();
  CHECK(sockets(NULL, 0) == 0, "a connection that nobody needs");
  EVP_PKEY *key = EVP_PKEY_Q_keygen(lib, NULL, "ED25519");
  CHECK(key && sockets(NULL, 0) == 0, "a key of the default provider");
  EVP_PKEY_free(key);
  // Daemons load keys before they give up their rights: a connection of that time is not kept.
  with_all();
  CHECK(sockets(NULL, 0) == 0, "a connection of a key that is loaded");
  CHECK(round_trip(lib, all_ours[1], all_theirs[1]) && sockets(NULL, 0) == 1, "a connection of a key that signs");
}

// The connection is there when the provider is loaded, and is the one that is used.
static void early(void) {
  unsigned long long before, after;
  CHECK(sockets(&before, 1) == 1, "a connection at load");
  with_all();
  for (int i = 0; i < KEYS; i++) CHECK(round_trip(lib, all_ours[i], all_theirs[i]), "%s", names[i]);
  CHECK(sockets(&after, 1) == 1 && before == after, "the same connection");
}

// Allows these system calls and those of memory, and ends the process at any other.
static void confine(const int *calls, int count) {
  static const int always[] = {SYS_getrandom, SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex, SYS_write, SYS_exit_group};
  struct sock_filter filter[64] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  int len = 1;
  for (int i = 0; i < (int)(sizeof always / sizeof *always) + count; i++) {
    int call = i < count ? calls[i] : always[i - count];
    filter[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
    filter[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  filter[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  struct sock_fprog program = {len, filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "a filter: %s", strerror(errno));
}

// The system calls that the docs name are all that signing makes, as a child of a program with such a filter shows.
static void confined(int is_connected, const int *calls, int count) {
  with_all();
  if (!is_connected) for (int fd = 3; fd < 64; fd++) close(fd);
  pid_t child = is_connected ? 0 : fork();
  if (child == 0) {
    // A socket takes the lowest number, which is not left to it.
    if (!is_connected) close(0);
    confine(calls, count);
    for (int i = 0; i < 2 * KEYS; i++) CHECK(round_trip(lib, all_ours[i % KEYS], all_theirs[i % KEYS]), "%s", names[i % KEYS]);
    // The C library's streams make calls of their own.
    static const char done[] = "confined-early ok\n";
    if (is_connected && write(1, done, sizeof done - 1) != sizeof done - 1) _exit(2);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "a confined child: %x", status);
}

static void confined_late(void) {
  static const int calls[] = {SYS_socket, SYS_fcntl, SYS_getsockopt, SYS_setsockopt, SYS_connect, SYS_newfstatat, SYS_fstat, SYS_ppoll, SYS_sendto, SYS_recvfrom, SYS_getpid, SYS_geteuid, SYS_getegid, SYS_close, SYS_clock_nanosleep};
  confined(0, calls, sizeof calls / sizeof *calls);
}

static void confined_early(void) {
  static const int calls[] = {SYS_fstat, SYS_ppoll, SYS_sendto, SYS_recvfrom, SYS_getpid, SYS_geteuid, SYS_getegid};
  confined(1, calls, sizeof calls / sizeof *calls);
}

// Loads a key as root, which may not use it, and signs as the user who may.
static void users(void) {
  EVP_PKEY *our = ours("served"), *their = theirs("ed");
  CHECK(!round_trip(lib, our, their), "root signs");
  CHECK(sockets(NULL, 0) == 0, "a connection that is refused");
  CHECK(setegid(65534) == 0 && seteuid(65534) == 0, "another user: %s", strerror(errno));
  CHECK(round_trip(lib, our, their), "the other user");
  CHECK(seteuid(0) == 0 && setegid(0) == 0, "root again: %s", strerror(errno));
  CHECK(!round_trip(lib, our, their), "root signs by a connection of the other user");
  ERR_clear_error();
  // A connection of root's that waits.
  EVP_PKEY *of_root = ours("ec"), *public = theirs("ec");
  CHECK(round_trip(lib, of_root, public) && sockets(NULL, 0) == 1, "root signs with a key of its own");
  CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0, "for good: %s", strerror(errno));
  CHECK(round_trip(lib, our, their), "after root is gone for good");
  CHECK(!round_trip(lib, of_root, public), "a key of root's is used by a connection of root's");
  EVP_PKEY_free(our), EVP_PKEY_free(their), EVP_PKEY_free(of_root), EVP_PKEY_free(public);
  ERR_clear_error();
}

static int rounds, is_over, failures, successes;

static void *signer(void *argument) {
  for (int i = 0; i < rounds; i++) {
    int which = (i + (int)(size_t)argument) % KEYS;
    CHECK(round_trip(lib, all_ours[which], all_theirs[which]), "thread %zu, round %d", (size_t)argument, i);
  }
  return NULL;
}

static void *signer_beside_forks(void *argument) {
  pthread_mutex_lock(&inside);
  has_lock = 1;
  signer(argument);
  pthread_mutex_unlock(&inside);
  return NULL;
}

static void threads(void) {
  pthread_t all[8];
  with_all();
  rounds = 40;
  for (size_t i = 0; i < 8; i++) pthread_create(all + i, NULL, signer, (void *)i);
  for (int i = 0; i < 8; i++) pthread_join(all[i], NULL);
  CHECK(sockets(NULL, 0) <= 4, "connections that stay: %d", sockets(NULL, 0));
}

static void forks(void) {
  with_all();
  rounds = 20;
  CHECK(round_trip(lib, all_ours[0], all_theirs[0]), "before the forks");
  unsigned long long before[16], after[16];
  int count = sockets(before, 16);
  CHECK(count >= 1 && count < 16, "connections: %d", count);
  // Threads that sign meanwhile: a child has none of them, and waits for none.
  pthread_t all[2];
  int many = rounds;
  rounds = 60;
  for (size_t i = 0; i < 2; i++) pthread_create(all + i, NULL, signer_beside_forks, (void *)i);
  pid_t children[8];
  for (int i = 0; i < 8; i++) {
    pthread_mutex_lock(&inside);
    children[i] = fork();
    pthread_mutex_unlock(&inside);
    if (children[i] == 0) {
      alarm(60);
      rounds = many;
      signer((void *)(size_t)i);
      // A grandchild, too.
      pid_t child = fork();
      if (child == 0) {
        signer((void *)(size_t)i);
        _exit(0);
      }
      int status;
      CHECK(waitpid(child, &status, 0) == child && status == 0, "a grandchild");
      // The parent's connections that waited are not in use here.
      int now = sockets(after, 16);
      CHECK(now < 16, "connections of a child: %d", now);
      CHECK(round_trip(lib, all_ours[0], all_theirs[0]), "after the grandchild");
      _exit(0);
    }
  }
  for (int i = 0; i < 8; i++) {
    int status;
    CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0, "child %d: %x", i, status);
  }
  for (int i = 0; i < 2; i++) pthread_join(all[i], NULL);
  // A child by a raw clone, of which the C library knows nothing. In a process namespace of its own it is called 1, as its own
  // child would be for its parent.
  pid_t raw = syscall(SYS_clone, (geteuid() == 0 ? CLONE_NEWPID : 0) | SIGCHLD, 0, 0, 0, 0);
  if (raw == 0) {
    alarm(60);
    CHECK(round_trip(lib, all_ours[0], all_theirs[0]) && sockets(after, 16) == 1, "a child by clone");
    unsigned long long grand[16];
    pid_t next = syscall(SYS_clone, (geteuid() == 0 ? CLONE_NEWPID : 0) | SIGCHLD, 0, 0, 0, 0);
    if (next == 0) {
      CHECK(round_trip(lib, all_ours[0], all_theirs[0]) && sockets(grand, 16) == 1 && grand[0] != after[0], "its child, with process id %d", getpid());
      _exit(0);
    }
    int status;
    CHECK(next > 0 && waitpid(next, &status, 0) == next && status == 0, "its child: %s", strerror(errno));
    _exit(0);
  }
  int raw_status;
  CHECK(raw > 0 && waitpid(raw, &raw_status, 0) == raw && raw_status == 0, "a child by clone: %s", strerror(errno));
  // Alone now: a child closes what it has inherited when it signs, and connects.
  count = sockets(before, 16);
  pid_t child = fork();
  if (child == 0) {
    CHECK(round_trip(lib, all_ours[1], all_theirs[1]), "a child");
    CHECK(sockets(after, 16) == 1, "a child has a connection of its own, and no other one");
    for (int i = 0; i < count; i++) CHECK(after[0] != before[i], "a child uses a connection of its parent");
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the last child");
  CHECK(round_trip(lib, all_ours[2], all_theirs[2]), "the parent goes on");
}

// The program closes everything, and opens sockets of its own under all numbers.
static void closed(void) {
  enum { MOST = 64 };
  int peers[MOST];
  with_all();
  CHECK(round_trip(lib, all_ours[0], all_theirs[0]) && sockets(NULL, 0) == 1, "a connection");
  for (int fd = 3; fd < MOST; fd++) close(fd);
  CHECK(round_trip(lib, all_ours[1], all_theirs[1]), "after all descriptors were closed");
  for (int fd = 3; fd < MOST; fd++) close(fd);
  for (int fd = 3; fd < MOST; fd++) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "a pair");
    peers[fd] = fcntl(pair[1], F_DUPFD_CLOEXEC, 500);
    if (pair[0] != fd) CHECK(dup3(pair[0], fd, O_CLOEXEC) == fd && close(pair[0]) == 0, "number %d", fd);
    if (pair[1] != fd) close(pair[1]);
  }
  for (int i = 0; i < 5; i++) CHECK(round_trip(lib, all_ours[i % KEYS], all_theirs[i % KEYS]), "beside sockets of the program");
  for (int i = 0; i < KEYS; i++) EVP_PKEY_free(all_ours[i]);
  OSSL_LIB_CTX_free(lib);
  for (int fd = 3; fd < MOST; fd++) {
    char byte;
    CHECK(recv(peers[fd], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "number %d was written or closed", fd);
    CHECK(send(peers[fd], "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) == 1, "number %d is open", fd);
  }
  lib = load();
}

static volatile sig_atomic_t ticks;
static void tick(int number) { (void)number, ticks++; }

static void signals(void) {
  with_all();
  struct sigaction action = {.sa_handler = tick};
  sigaction(SIGALRM, &action, NULL);
  // SIGPIPE would end this program.
  signal(SIGPIPE, SIG_DFL);
  struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, NULL);
  // Until enough have come, whatever the machine does meanwhile.
  for (int i = 0; i < 100 || ticks < 50; i++) CHECK(round_trip(lib, all_ours[i % KEYS], all_theirs[i % KEYS]), "with signals, round %d", i);
  setitimer(ITIMER_REAL, &never, NULL);
}

static void loads(void) {
  EVP_PKEY *their = theirs("ec");
  int before = sockets(NULL, 0);
  for (int i = 0; i < 3; i++) {
    OSSL_LIB_CTX *one = load(), *two = load();
    EVP_PKEY *first = stored(one, "ec"), *second = stored(two, "ec");
    CHECK(first && second && round_trip(one, first, their) && round_trip(two, second, their), "two loads");
    EVP_PKEY_free(first);
    OSSL_LIB_CTX_free(one);
    CHECK(round_trip(two, second, their), "one load is gone");
    EVP_PKEY_free(second);
    OSSL_LIB_CTX_free(two);
    CHECK(sockets(NULL, 0) == before, "connections of loads that are gone");
  }
  EVP_PKEY_free(their);
}

static void say(const char *word) { printf("%s\n", word), fflush(stdout); }

static int is_told(void) {
  char line[100];
  return fgets(line, sizeof line, stdin) && strcmp(line, "end\n");
}

// Signs each time that it is told to, and says how that went.
static void asked(void) {
  with_all();
  say("ready");
  for (int i = 0; is_told(); i++) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    int done = round_trip(lib, all_ours[i % KEYS], all_theirs[i % KEYS]);
    clock_gettime(CLOCK_MONOTONIC, &to);
    CHECK(to.tv_sec - from.tv_sec < 20, "it took %ld s", (long)(to.tv_sec - from.tv_sec));
    const char *text = NULL;
    int flags;
    unsigned long code = done ? 0 : ERR_peek_last_error_all(NULL, NULL, NULL, &text, &flags);
    printf("%s%s\n", done ? "signed" : "refused: ", done ? "" : flags & ERR_TXT_STRING ? text : ERR_reason_error_string(code));
    fflush(stdout);
    ERR_clear_error();
  }
}

// Takes all places in which connections wait for a keeper that accepts none, until it is told to end.
static void crowd(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", keys);
  int count = 0;
  for (;; count++) {
    int one = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(one >= 0 && count < 5000, "connections without end");
    if (connect(one, (struct sockaddr *)&address, sizeof address) == 0) continue;
    CHECK(errno == EAGAIN, "a connection: %s", strerror(errno));
    close(one);
    break;
  }
  say("ready");
  while (is_told()) say("on");
}

static void *stormer(void *argument) {
  for (int i = (int)(size_t)argument; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); i++) {
    int done = round_trip(lib, all_ours[i % KEYS], all_theirs[i % KEYS]);
    __atomic_add_fetch(done ? &successes : &failures, 1, __ATOMIC_RELAXED);
    ERR_clear_error();
  }
  return NULL;
}

// Signs all the time, in four threads; each line asks for as many more signatures as there are threads, so that all have had one.
static void storm(void) {
  pthread_t all[4];
  with_all();
  for (size_t i = 0; i < 4; i++) pthread_create(all + i, NULL, stormer, (void *)i);
  say("ready");
  while (is_told()) {
    int from = __atomic_load_n(&successes, __ATOMIC_RELAXED);
    while (__atomic_load_n(&successes, __ATOMIC_RELAXED) < from + 8) usleep(1000);
    say("signed");
  }
  __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
  for (int i = 0; i < 4; i++) pthread_join(all[i], NULL);
}

// ------------------------------------------------------------------------------------------------------------ symmetric keys

// Algorithms, and the keys of the keeper's for them, whose bytes are in KEYS as NAME.key.
static const struct symmetric {
  const char *algorithm, *name, *parameter, *value;
} symmetrics[] = {
    {"AES-256-ECB", "ecb", 0, 0},      {"AES-256-CBC", "cbc", 0, 0}, {"AES-256-CTR", "ctr", 0, 0},
    {"AES-256-CBC-CTS", "cbc", 0, 0},  {"AES-256-XTS", "xts", 0, 0}, {"DES-EDE3-CBC", "des", 0, 0},
    {"AES-256-GCM", "gcm", 0, 0},      {"AES-256-CCM", "ccm", 0, 0}, {"ChaCha20-Poly1305", "chacha", 0, 0},
    {"HMAC", "hmac", "digest", "SHA256"}, {"CMAC", "cmac", "cipher", "AES-256-CBC"}, {"GMAC", "gcm", "cipher", "AES-256-GCM"},
};
enum { SYMMETRICS = sizeof symmetrics / sizeof *symmetrics, FIRST_AEAD = 6, FIRST_MAC = 9, LEN = 400 };

static unsigned char iv[16] = "sixteen bytes..", text[LEN];

static size_t key_of(const char *name, unsigned char *key) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.key", keys, name);
  FILE *file = fopen(path, "r");
  CHECK(file, "%s", path);
  size_t len = fread(key, 1, 64, file);
  fclose(file);
  return len;
}

// The last error has this reason, and these words if there are some.
static void refused_by(int done, const char *reason, const char *words, const char *what) {
  int is_told = 0;
  const char *said = "";
  for (unsigned long code; !is_told && (code = ERR_peek_error()) != 0;) {
    const char *data = NULL, *about = ERR_reason_error_string(code);
    int flags;
    ERR_get_error_all(NULL, NULL, NULL, &data, &flags);
    is_told = about && !strcmp(about, reason) && (!words || (data && strstr(data, words)));
    if (data && *data) said = data;
  }
  CHECK(done <= 0 && is_told, "%s: %d, not refused by '%s' and '%s', but: %s", what, done, reason, words ? words : "", said);
  ERR_clear_error();
}

static int is_mode(EVP_CIPHER_CTX *ctx, int mode) { return EVP_CIPHER_get_mode(EVP_CIPHER_CTX_get0_cipher(ctx)) == mode; }

// A context of a cipher, under the bytes of a key or under its name.
static EVP_CIPHER_CTX *start(OSSL_LIB_CTX *in, const char *algorithm, int enc, const unsigned char *key, const char *name) {
  EVP_CIPHER *cipher = EVP_CIPHER_fetch(in, algorithm, in == lib ? "provider=sealane" : NULL);
  CHECK(cipher, "%s", algorithm);
  EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
  CHECK(EVP_CipherInit_ex2(ctx, cipher, NULL, NULL, enc, NULL), "%s begins", algorithm);
  if (is_mode(ctx, EVP_CIPH_CCM_MODE)) {
    CHECK(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, 12, NULL) > 0, "a length of nonces");
    CHECK(!enc || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 16, NULL) > 0, "a length of tags");
  }
  OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("sealane-key", (char *)name, 0), OSSL_PARAM_construct_end()};
  int done = EVP_CipherInit_ex2(ctx, NULL, key, iv, enc, name ? params : NULL);
  EVP_CIPHER_free(cipher);
  if (done) return ctx;
  EVP_CIPHER_CTX_free(ctx);
  return NULL;
}

// Text in pieces, where the mode takes them, by a copy of the context from the middle on. Returns the length, or -1.
static int run_text(EVP_CIPHER_CTX **place, int enc, const unsigned char *from, size_t len, unsigned char *out, unsigned char *tag) {
  EVP_CIPHER_CTX *ctx = *place;
  int n, total = 0, is_ccm = is_mode(ctx, EVP_CIPH_CCM_MODE);
  const EVP_CIPHER *cipher = EVP_CIPHER_CTX_get0_cipher(ctx);
  int is_aead = !!(EVP_CIPHER_get_flags(cipher) & EVP_CIPH_FLAG_AEAD_CIPHER);
  int is_once = is_ccm || is_mode(ctx, EVP_CIPH_XTS_MODE) || (EVP_CIPHER_get_flags(cipher) & EVP_CIPH_FLAG_CTS);
  if (is_aead && !enc && EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 16, tag) <= 0) return -1;
  if (is_ccm && (!EVP_CipherInit_ex2(ctx, NULL, NULL, iv, enc, NULL) || !EVP_CipherUpdate(ctx, NULL, &n, NULL, len))) return -1;
  if (is_aead && !EVP_CipherUpdate(ctx, NULL, &n, iv, 13)) return -1;
  for (size_t at = 0; at < len;) {
    size_t part = is_once ? len : at == 0 ? 37 : len - at;
    if (!EVP_CipherUpdate(ctx, out + total, &n, from + at, part)) return -1;
    total += n, at += part;
    EVP_CIPHER_CTX *copy = EVP_CIPHER_CTX_new();
    CHECK(EVP_CIPHER_CTX_copy(copy, ctx), "a copy");
    EVP_CIPHER_CTX_free(ctx);
    *place = ctx = copy;
  }
  if (!EVP_CipherFinal_ex(ctx, out + total, &n)) return -1;
  if (is_aead && enc && EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, tag) <= 0) return -1;
  return total + n;
}

static EVP_MAC_CTX *start_mac(OSSL_LIB_CTX *in, const struct symmetric *s, const unsigned char *key, size_t len, const char *name) {
  EVP_MAC *mac = EVP_MAC_fetch(in, s->algorithm, in == lib ? "provider=sealane" : NULL);
  CHECK(mac, "%s", s->algorithm);
  EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
  OSSL_PARAM params[4];
  int n = 0;
  if (s->value) params[n++] = OSSL_PARAM_construct_utf8_string(s->parameter, (char *)s->value, 0);
  if (!strcmp(s->algorithm, "GMAC")) params[n++] = OSSL_PARAM_construct_octet_string("iv", iv, 12);
  if (name) params[n++] = OSSL_PARAM_construct_utf8_string("sealane-key", (char *)name, 0);
  params[n] = OSSL_PARAM_construct_end();
  int done = EVP_MAC_init(ctx, key, len, params);
  EVP_MAC_free(mac);
  if (done) return ctx;
  EVP_MAC_CTX_free(ctx);
  return NULL;
}

// The tag of a message in pieces, by a copy from the middle on; 0 where there is none.
static size_t run_mac(EVP_MAC_CTX **place, const unsigned char *message, size_t len, unsigned char *tag) {
  size_t n = 0;
  if (!EVP_MAC_update(*place, message, len / 3)) return 0;
  EVP_MAC_CTX *copy = EVP_MAC_CTX_dup(*place);
  if (!copy) return 0;
  EVP_MAC_CTX_free(*place);
  *place = copy;
  return EVP_MAC_update(copy, message + len / 3, len - len / 3) && EVP_MAC_final(copy, tag, &n, 64) ? n : 0;
}

static void named_cipher(const struct symmetric *s) {
  static unsigned char our[LEN + 32], their[LEN + 32], opened[LEN + 32];
  unsigned char key[64], our_tag[16], their_tag[16];
  size_t len = key_of(s->name, key);
  EVP_CIPHER_CTX *ours = start(lib, s->algorithm, 1, NULL, s->name), *theirs = start(clean, s->algorithm, 1, key, NULL);
  CHECK(ours && theirs, "%s by name", s->algorithm);
  CHECK((size_t)EVP_CIPHER_CTX_get_key_length(ours) == len, "the length of keys of %s", s->algorithm);
  char told[100] = "";
  OSSL_PARAM ask[] = {OSSL_PARAM_construct_utf8_string("sealane-key", told, sizeof told), OSSL_PARAM_construct_end()};
  CHECK(EVP_CIPHER_CTX_get_params(ours, ask) && !strcmp(told, s->name), "the name of %s: %s", s->algorithm, told);
  int n = run_text(&ours, 1, text, LEN, our, our_tag), m = run_text(&theirs, 1, text, LEN, their, their_tag);
  CHECK(n > 0 && n == m && !memcmp(our, their, n), "a text by %s: %d and %d bytes", s->algorithm, n, m);
  int is_aead = s - symmetrics >= FIRST_AEAD;
  CHECK(!is_aead || !memcmp(our_tag, their_tag, 16), "a tag by %s", s->algorithm);
  CHECK(EVP_CIPHER_CTX_get_params(ours, ask) && !strcmp(told, s->name), "the name of a copy of %s", s->algorithm);
  EVP_CIPHER_CTX_free(ours), EVP_CIPHER_CTX_free(theirs);
  // Back, with the key given later, and by its URI.
  ours = start(lib, s->algorithm, 0, NULL, NULL);
  char uri[100];
  snprintf(uri, sizeof uri, "sealane://%s?version=1", s->name);
  OSSL_PARAM give[] = {OSSL_PARAM_construct_utf8_string("sealane-key", uri, 0), OSSL_PARAM_construct_end()};
  CHECK(ours && EVP_CIPHER_CTX_set_params(ours, give), "%s, by its URI", s->algorithm);
  CHECK(run_text(&ours, 0, our, n, opened, our_tag) == LEN && !memcmp(opened, text, LEN), "back by %s", s->algorithm);
  CHECK(EVP_CIPHER_CTX_get_params(ours, ask) && !strcmp(told, uri), "the name: %s", told);
  if (is_aead) {
    CHECK(EVP_CipherInit_ex2(ours, NULL, NULL, iv, 0, NULL), "again");
    our_tag[3] ^= 4;
    CHECK(run_text(&ours, 0, our, n, opened, our_tag) < 0, "a forged text by %s", s->algorithm);
    ERR_clear_error();
  }
  // The bytes of another key take its place.
  for (size_t i = 0; i < len; i++) key[i] ^= 7 * i + 2;
  CHECK(EVP_CipherInit_ex2(ours, NULL, key, iv, 1, NULL), "the bytes of a key after a name");
  memset(told, 0, sizeof told);
  EVP_CIPHER_CTX_get_params(ours, ask);
  CHECK(!*told, "the name of a key without one: %s", told);
  EVP_CIPHER_CTX_free(ours);
}

static void named_mac(const struct symmetric *s) {
  static unsigned char message[300000];
  unsigned char key[64], our[64], their[64];
  size_t len = key_of(s->name, key);
  for (size_t i = 0; i < sizeof message; i++) message[i] = i >> 3;
  EVP_MAC_CTX *ours = start_mac(lib, s, NULL, 0, s->name), *theirs = start_mac(clean, s, key, len, NULL);
  CHECK(ours && theirs, "%s by name", s->algorithm);
  char told[100] = "";
  OSSL_PARAM ask[] = {OSSL_PARAM_construct_utf8_string("sealane-key", told, sizeof told), OSSL_PARAM_construct_end()};
  // GMAC has no parameters to be asked for.
  if (strcmp(s->algorithm, "GMAC")) CHECK(EVP_MAC_CTX_get_params(ours, ask) && !strcmp(told, s->name), "the name of %s: %s", s->algorithm, told);
  static const size_t lens[] = {0, 100, 65536, 65537, 300000};
  for (int i = 0; i < 5; i++) {
    OSSL_PARAM again[] = {OSSL_PARAM_construct_octet_string("iv", iv + i % 4, 12), OSSL_PARAM_construct_end()};
    OSSL_PARAM *params = strcmp(s->algorithm, "GMAC") ? NULL : again;
    CHECK(EVP_MAC_init(ours, NULL, 0, params) && EVP_MAC_init(theirs, NULL, 0, params), "%s begins again", s->algorithm);
    size_t n = run_mac(&ours, message, lens[i], our), m = run_mac(&theirs, message, lens[i], their);
    CHECK(n && n == m && !memcmp(our, their, n), "%s of %zu bytes: %zu and %zu", s->algorithm, lens[i], n, m);
  }
  EVP_MAC_CTX_free(ours), EVP_MAC_CTX_free(theirs);
}

// Keys of the keeper's by their names: what comes out is what the default provider makes of their bytes.
static void named(void) {
  for (int i = 0; i < SYMMETRICS; i++) i < FIRST_MAC ? named_cipher(&symmetrics[i]) : named_mac(&symmetrics[i]);
  unsigned char out[LEN + 32], tag[16];
  refused_by(start(lib, "AES-256-CBC", 1, NULL, "nobody") != NULL, "no such key", "nobody", "a key that is not there");
  refused_by(start(lib, "AES-256-CBC", 1, NULL, "two words") != NULL, "not the name of a key", "two words", "no name");
  refused_by(start(lib, "AES-256-CBC", 1, NULL, "ctr") != NULL, "refused by the keeper of keys", "ctr(aes)", "a key of another algorithm");
  refused_by(start(lib, "AES-128-CBC", 1, NULL, "cbc") != NULL, "refused by the keeper of keys", "32 bytes, not 16", "a key of another length");
  refused_by(start(lib, "AES-256-CBC", 1, NULL, "expired") != NULL, "refused by the keeper of keys", "has expired", "an expired key");
  refused_by(start(lib, "AES-256-CBC", 1, NULL, "revoked") != NULL, "no such key", "revoked", "a revoked key");
  static const struct symmetric kmac = {"KMAC-256", "hmac", 0, 0}, wrong = {"HMAC", "cbc", "digest", "SHA256"};
  refused_by(start_mac(lib, &kmac, NULL, 0, "hmac") != NULL, "not supported", "KMAC", "KMAC");
  refused_by(start_mac(lib, &wrong, NULL, 0, "cbc") != NULL, "refused by the keeper of keys", "cbc(aes)", "a cipher's key for a MAC");
  // After a name that is refused there is no key, also where there was one.
  unsigned char key[64];
  key_of("cbc", key);
  EVP_CIPHER_CTX *ctx = start(lib, "AES-256-CBC", 1, key, NULL);
  OSSL_PARAM give[] = {OSSL_PARAM_construct_utf8_string("sealane-key", "nobody", 0), OSSL_PARAM_construct_end()};
  refused_by(EVP_CIPHER_CTX_set_params(ctx, give), "no such key", "nobody", "a name in a context with a key");
  CHECK(run_text(&ctx, 1, text, LEN, out, tag) < 0, "a text under the key of before");
  ERR_clear_error();
  EVP_CIPHER_CTX_free(ctx);
  // Nor is it guessed which of two is meant.
  refused_by(start(lib, "AES-256-CBC", 1, key, "cbc") != NULL, "invalid data", "a key and the name of one", "two keys of a cipher");
  static const struct symmetric hmac = {"HMAC", "hmac", "digest", "SHA256"};
  refused_by(start_mac(lib, &hmac, key, 32, "hmac") != NULL, "invalid data", "a key and the name of one", "two keys of a MAC");
  // Uses.
  for (int enc = 0; enc < 2; enc++) {
    static const struct {
      const char *algorithm, *encrypts, *decrypts;
    } uses[] = {{"AES-256-CBC", "cbc-enc", "cbc-dec"}, {"AES-256-CTR", "ctr-enc", "ctr-dec"}, {"AES-256-GCM", "gcm-enc", "gcm-dec"}};
    for (int i = 0; i < 3; i++) {
      const char *may = enc ? uses[i].encrypts : uses[i].decrypts, *may_not = enc ? uses[i].decrypts : uses[i].encrypts;
      ctx = start(lib, uses[i].algorithm, enc, NULL, may_not);
      CHECK(ctx, "%s: it may do something", may_not);
      memset(tag, 0, 16);
      refused_by(run_text(&ctx, enc, text, LEN, out, tag), "not permitted", may_not, "a use that is not the key's");
      EVP_CIPHER_CTX_free(ctx);
      ctx = start(lib, uses[i].algorithm, enc, NULL, may);
      int n;
      CHECK(ctx && EVP_CipherUpdate(ctx, out, &n, text, 64), "%s: its use", may);
      EVP_CIPHER_CTX_free(ctx);
    }
  }
}

static void *symmetric_thread(void *argument) {
  static unsigned char sealed[LEN + 32];
  unsigned char out[LEN + 32], tag[16], key[64];
  const struct symmetric *s = &symmetrics[(size_t)argument % FIRST_MAC];
  key_of(s->name, key);
  EVP_CIPHER_CTX *theirs = start(clean, s->algorithm, 1, key, NULL);
  unsigned char expected[LEN + 32];
  int n = run_text(&theirs, 1, text, LEN, expected, tag);
  EVP_CIPHER_CTX_free(theirs);
  for (int i = 0; i < 30; i++) {
    EVP_CIPHER_CTX *ours = start(lib, s->algorithm, 1, i % 2 ? key : NULL, i % 2 ? NULL : s->name);
    CHECK(ours && run_text(&ours, 1, text, LEN, out, tag) == n && !memcmp(out, expected, n), "%s in a thread", s->algorithm);
    EVP_CIPHER_CTX_free(ours);
  }
  (void)sealed;
  return NULL;
}

// Contexts that go on in a child, in mid-text, and threads. Keys come by their bytes and by their names.
static void begun(void) {
  enum { BOTH = 2 };
  static EVP_CIPHER_CTX *all[SYMMETRICS][BOTH];
  static EVP_MAC_CTX *macs[SYMMETRICS][BOTH];
  unsigned char key[64], out[LEN + 32], expected[LEN + 32], tag[64];
  int n, m;
  for (int i = 0; i < SYMMETRICS; i++) {
    const struct symmetric *s = &symmetrics[i];
    size_t len = key_of(s->name, key);
    for (int by_name = 0; by_name < BOTH; by_name++) {
      if (i >= FIRST_MAC) macs[i][by_name] = start_mac(lib, s, by_name ? NULL : key, by_name ? 0 : len, by_name ? s->name : NULL);
      else all[i][by_name] = start(lib, s->algorithm, 1, by_name ? NULL : key, by_name ? s->name : NULL);
      CHECK(all[i][by_name] || macs[i][by_name], "%s", s->algorithm);
    }
  }
  // CBC and CTR have begun; so has GCM, whose message is in the keeper.
  static const char *const in_text[] = {"AES-256-CBC", "AES-256-CTR", "AES-256-GCM"};
  EVP_CIPHER_CTX *mid[3];
  for (int i = 0; i < 3; i++) {
    key_of(i == 0 ? "cbc" : i == 1 ? "ctr" : "gcm", key);
    mid[i] = start(lib, in_text[i], 1, key, NULL);
    CHECK(mid[i] && EVP_EncryptUpdate(mid[i], out, &n, text, 37), "%s", in_text[i]);
  }
  fflush(NULL);
  for (int turn = 0; turn < 2; turn++) {
    // In a child, and then in the parent.
    pid_t child = turn ? 0 : fork();
    if (child) {
      int status;
      CHECK(waitpid(child, &status, 0) == child && status == 0, "a child: %x", status);
      continue;
    }
    for (int i = 0; i < 3; i++) {
      int is_lost = i == 2 && turn == 0;
      int done = EVP_EncryptUpdate(mid[i], out, &n, text + 37, 100);
      if (is_lost) {
        refused_by(done, "no answer of the keeper of keys", "another process", "a message of the parent's in a child");
        // Another message goes on.
        CHECK(EVP_EncryptInit_ex2(mid[i], NULL, NULL, iv, NULL) && EVP_EncryptUpdate(mid[i], out, &n, text, 100), "the next message");
        continue;
      }
      key_of(i == 0 ? "cbc" : i == 1 ? "ctr" : "gcm", key);
      EVP_CIPHER_CTX *theirs = start(clean, in_text[i], 1, key, NULL);
      CHECK(EVP_EncryptUpdate(theirs, expected, &m, text, 37) && EVP_EncryptUpdate(theirs, expected, &m, text + 37, 100), "theirs");
      CHECK(done && n == m && !memcmp(out, expected, n), "%s goes on, turn %d", in_text[i], turn);
      EVP_CIPHER_CTX_free(theirs);
    }
    for (int i = 0; i < SYMMETRICS; i++) {
      const struct symmetric *s = &symmetrics[i];
      size_t len = key_of(s->name, key);
      for (int by_name = 0; by_name < BOTH; by_name++) {
        if (i >= FIRST_MAC) {
          EVP_MAC_CTX *theirs = start_mac(clean, s, key, len, NULL);
          unsigned char their_tag[64];
          size_t a = run_mac(&macs[i][by_name], text, LEN, tag), b = run_mac(&theirs, text, LEN, their_tag);
          CHECK(a && a == b && !memcmp(tag, their_tag, a), "%s, turn %d", s->algorithm, turn);
          EVP_MAC_CTX_free(theirs);
          continue;
        }
        EVP_CIPHER_CTX *theirs = start(clean, s->algorithm, 1, key, NULL);
        unsigned char their_tag[16];
        n = run_text(&all[i][by_name], 1, text, LEN, out, tag), m = run_text(&theirs, 1, text, LEN, expected, their_tag);
        CHECK(n > 0 && n == m && !memcmp(out, expected, n), "%s, turn %d, by name %d", s->algorithm, turn, by_name);
        EVP_CIPHER_CTX_free(theirs);
      }
    }
    if (turn == 0) _exit(0);
  }
  pthread_t some[FIRST_MAC];
  for (size_t i = 0; i < FIRST_MAC; i++) pthread_create(some + i, NULL, symmetric_thread, (void *)i);
  for (int i = 0; i < FIRST_MAC; i++) pthread_join(some[i], NULL);
}

// Encrypts and authenticates each time that it is told to, by keys that it has set before and by one that it sets then.
static void symmetric(void) {
  unsigned char key[64], out[LEN + 32], tag[64];
  size_t len = key_of("cbc", key);
  EVP_CIPHER_CTX *cbc = start(lib, "AES-256-CBC", 1, key, NULL), *ctr = start(lib, "AES-128-CTR", 1, key, NULL), *gcm = start(lib, "AES-256-GCM", 1, NULL, "gcm");
  EVP_MAC_CTX *hmac = start_mac(lib, &symmetrics[FIRST_MAC], key, len, NULL);
  CHECK(cbc && ctr && gcm && hmac, "keys");
  say("ready");
  for (int i = 0; is_told(); i++) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    int done = 0;
    if (i % 4 == 0) done = EVP_EncryptInit_ex2(cbc, NULL, NULL, NULL, NULL) && run_text(&cbc, 1, text, LEN, out, tag) > 0;
    else if (i % 4 == 1) done = EVP_EncryptInit_ex2(gcm, NULL, NULL, iv, NULL) && run_text(&gcm, 1, text, LEN, out, tag) > 0;
    else if (i % 4 == 2) done = EVP_MAC_init(hmac, NULL, 0, NULL) && run_mac(&hmac, text, LEN, tag) > 0;
    else {
      EVP_CIPHER_CTX *another = start(lib, "AES-256-CBC", 1, key, NULL);
      done = another != NULL;
      EVP_CIPHER_CTX_free(another);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    CHECK(to.tv_sec - from.tv_sec < 20, "it took %ld s", (long)(to.tv_sec - from.tv_sec));
    const char *words = "";
    unsigned long code;
    while (!done && (code = ERR_peek_error())) {
      const char *data = NULL;
      ERR_get_error_all(NULL, NULL, NULL, &data, NULL);
      if (data && !strncmp(data, "sealane: ", 9)) words = data;
    }
    printf("%s%s\n", done ? "done" : "refused: ", words);
    fflush(stdout);
    ERR_clear_error();
    int n;
    // A text that has ended in the middle does not go on, whether the keeper is there again or not.
    if (done || i % 4) continue;
    refused_by(EVP_EncryptUpdate(cbc, out, &n, text, LEN), "cipher operation failed", "a call before has failed", "text after a failure");
    // CTR would go on with its key stream, but for a new IV.
    CHECK(EVP_EncryptUpdate(ctr, out, &n, text, LEN) <= 0 && EVP_EncryptInit_ex2(ctr, NULL, NULL, NULL, NULL) == 1, "no IV");
    ERR_clear_error();
    refused_by(EVP_EncryptUpdate(ctr, out, &n, text, LEN), "cipher operation failed", "a call before has failed", "the key stream of before");
    CHECK(EVP_EncryptInit_ex2(ctr, NULL, NULL, iv, NULL) == 1, "an IV");
    refused_by(EVP_EncryptUpdate(ctr, out, &n, text, LEN), "no answer of the keeper of keys", NULL, "a new message");
  }
}

// OpenSSL 3.5 and later.
typedef struct evp_skey_st SKEY;
extern SKEY *EVP_SKEY_import(OSSL_LIB_CTX *, const char *, const char *, int, const OSSL_PARAM *) __attribute__((weak));
extern SKEY *EVP_SKEY_generate(OSSL_LIB_CTX *, const char *, const char *, const OSSL_PARAM *) __attribute__((weak));
extern int EVP_SKEY_get0_raw_key(const SKEY *, const unsigned char **, size_t *) __attribute__((weak));
extern const char *EVP_SKEY_get0_key_id(const SKEY *) __attribute__((weak));
extern void EVP_SKEY_free(SKEY *) __attribute__((weak));
extern int EVP_CipherInit_SKEY(EVP_CIPHER_CTX *, const EVP_CIPHER *, SKEY *, const unsigned char *, size_t, int, const OSSL_PARAM *) __attribute__((weak));
extern int EVP_MAC_init_SKEY(EVP_MAC_CTX *, SKEY *, const OSSL_PARAM *) __attribute__((weak));

enum { SECRET_KEY = 2 };

// A key by its bytes, or by its name.
static SKEY *opaque_key(const char *type, const unsigned char *key, size_t len, const char *name) {
  OSSL_PARAM params[] = {name ? OSSL_PARAM_construct_utf8_string("sealane-key", (char *)name, 0)
                              : OSSL_PARAM_construct_octet_string("raw-bytes", (void *)key, len),
                         OSSL_PARAM_construct_end()};
  return EVP_SKEY_import(lib, type, "provider=sealane", SECRET_KEY, params);
}

static EVP_CIPHER_CTX *start_opaque(const char *algorithm, int enc, SKEY *key) {
  EVP_CIPHER_CTX *ctx = start(lib, algorithm, enc, NULL, NULL);
  int len = EVP_CIPHER_CTX_get_iv_length(ctx);
  if (EVP_CipherInit_SKEY(ctx, NULL, key, len ? iv : NULL, len, enc, NULL)) return ctx;
  EVP_CIPHER_CTX_free(ctx);
  return NULL;
}

static void opaque_cipher(const struct symmetric *s, const char *type, int by_name) {
  static unsigned char our[LEN + 32], their[LEN + 32], opened[LEN + 32];
  unsigned char key[64], our_tag[16], their_tag[16];
  size_t len = key_of(s->name, key);
  SKEY *opaque = opaque_key(type, key, len, by_name ? s->name : NULL);
  CHECK(opaque, "a key of %s", s->algorithm);
  char uri[100];
  snprintf(uri, sizeof uri, "sealane://%s?version=1", s->name);
  const char *id = EVP_SKEY_get0_key_id(opaque);
  CHECK(by_name ? id && !strcmp(id, uri) : !id, "the id of a key of %s: %s", s->algorithm, id ? id : "none");
  for (int turn = 0; turn < 2; turn++) {
    EVP_CIPHER_CTX *ours = start_opaque(s->algorithm, 1, opaque), *theirs = start(clean, s->algorithm, 1, key, NULL);
    CHECK(ours && theirs, "%s by an opaque key", s->algorithm);
    int n = run_text(&ours, 1, text, LEN, our, our_tag), m = run_text(&theirs, 1, text, LEN, their, their_tag);
    CHECK(n > 0 && n == m && !memcmp(our, their, n), "a text by %s: %d and %d bytes", s->algorithm, n, m);
    CHECK(s - symmetrics < FIRST_AEAD || !memcmp(our_tag, their_tag, 16), "a tag by %s", s->algorithm);
    EVP_CIPHER_CTX_free(ours), EVP_CIPHER_CTX_free(theirs);
    ours = start_opaque(s->algorithm, 0, opaque);
    CHECK(ours && run_text(&ours, 0, our, n, opened, our_tag) == LEN && !memcmp(opened, text, LEN), "back by %s", s->algorithm);
    EVP_CIPHER_CTX_free(ours);
  }
  // A context outlives its key, also in a child.
  EVP_CIPHER_CTX *last = start_opaque(s->algorithm, 1, opaque);
  EVP_SKEY_free(opaque);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    CHECK(run_text(&last, 1, text, LEN, our, our_tag) > 0, "%s in a child", s->algorithm);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "a child: %x", status);
  EVP_CIPHER_CTX_free(last);
}

static void opaque_mac(const struct symmetric *s, const char *type, int by_name) {
  unsigned char key[64], our[64], their[64];
  size_t len = key_of(s->name, key);
  SKEY *opaque = opaque_key(type, key, len, by_name ? s->name : NULL);
  CHECK(opaque, "a key of %s", s->algorithm);
  EVP_MAC *mac = EVP_MAC_fetch(lib, s->algorithm, "provider=sealane");
  EVP_MAC_CTX *ours = EVP_MAC_CTX_new(mac), *theirs = start_mac(clean, s, key, len, NULL);
  OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(s->parameter, (char *)s->value, 0), OSSL_PARAM_construct_end()};
  CHECK(EVP_MAC_init_SKEY(ours, opaque, params), "%s by an opaque key", s->algorithm);
  EVP_SKEY_free(opaque), EVP_MAC_free(mac);
  size_t n = run_mac(&ours, text, LEN, our), m = run_mac(&theirs, text, LEN, their);
  CHECK(n && n == m && !memcmp(our, their, n), "%s: %zu and %zu bytes", s->algorithm, n, m);
  EVP_MAC_CTX_free(ours), EVP_MAC_CTX_free(theirs);
}

// Opaque keys; `is_told`: whether the bytes of the program's own can be had back.
static void opaques(int is_told) {
  if (!EVP_SKEY_import || !EVP_CipherInit_SKEY || !EVP_MAC_init_SKEY) exit(77);
  unsigned char key[64], out[LEN + 32], tag[16];
  for (int by_name = 0; by_name < 2; by_name++) {
    for (int i = 0; i < FIRST_MAC; i++) {
      const char *name = symmetrics[i].name;
      int is_aes = strcmp(name, "des") && strcmp(name, "chacha") && strcmp(name, "xts");
      if (is_aes || by_name) opaque_cipher(&symmetrics[i], "AES", by_name);
    }
    opaque_cipher(&symmetrics[FIRST_AEAD + 2], "GENERIC-SECRET", by_name);
    opaque_mac(&symmetrics[FIRST_MAC], "GENERIC-SECRET", by_name);
    opaque_mac(&symmetrics[FIRST_MAC + 1], "AES", by_name);
    size_t len = key_of("cbc", key), told_len = 0;
    const unsigned char *told = NULL;
    SKEY *opaque = opaque_key("AES", key, len, by_name ? "cbc" : NULL);
    int done = EVP_SKEY_get0_raw_key(opaque, &told, &told_len);
    if (is_told && !by_name) CHECK(done && told_len == len && !memcmp(told, key, len), "the bytes of a key");
    else refused_by(done, "not supported", "not told", "the bytes of a key that is elsewhere");
    EVP_SKEY_free(opaque);
  }
  // A random one: there and back.
  size_t want = 32;
  OSSL_PARAM make[] = {OSSL_PARAM_construct_size_t("key-length", &want), OSSL_PARAM_construct_end()};
  SKEY *random = EVP_SKEY_generate(lib, "AES", "provider=sealane", make);
  CHECK(random, "a random key");
  EVP_CIPHER_CTX *to = start_opaque("AES-256-GCM", 1, random), *from = start_opaque("AES-256-GCM", 0, random);
  int n = to ? run_text(&to, 1, text, LEN, out, tag) : -1;
  CHECK(n == LEN && from && run_text(&from, 0, out, n, out, tag) == LEN && !memcmp(out, text, LEN), "there and back");
  EVP_CIPHER_CTX_free(to), EVP_CIPHER_CTX_free(from);
  ERR_clear_error();
  // Mistakes.
  CHECK(!opaque_key("AES", key, 17, NULL), "17 bytes of AES");
  ERR_clear_error();
  refused_by(opaque_key("AES", NULL, 0, "nobody") != NULL, "no such key", "nobody", "a key that is not there");
  refused_by(opaque_key("AES", NULL, 0, "revoked") != NULL, "no such key", "revoked", "a revoked key");
  refused_by(opaque_key("AES", NULL, 0, "two words") != NULL, "not the name of a key", "two words", "no name");
  EVP_CIPHER_CTX *ctx = start_opaque("AES-128-GCM", 1, random);
  CHECK(!ctx, "a key of another length");
  EVP_SKEY_free(random);
  SKEY *other = opaque_key("AES", NULL, 0, "ctr");
  CHECK(!start_opaque("AES-256-CBC", 1, other), "a key of another algorithm");
  EVP_SKEY_free(other);
  ERR_clear_error();
}

static void opaque(void) { opaques(1); }
static void opaque_kept(void) { opaques(0); }

int main(int count, char **arguments) {
  CHECK(count >= 5, "usage: provider_keys FOLDER CONFIGURATION KEYS WHAT...");
  folder = arguments[1], configuration = arguments[2], keys = arguments[3];
  clean = OSSL_LIB_CTX_new();
  CHECK(clean && OSSL_PROVIDER_load(clean, "default"), "the default provider");
  lib = load();
  static const struct {
    const char *name;
    void (*run)(void);
  } all[] = {{"parts", parts}, {"lists", lists}, {"ciphers", ciphers}, {"texts", texts}, {"contexts", contexts}, {"lazy", lazy}, {"threads", threads}, {"forks", forks},
             {"users", users}, {"early", early}, {"confined", confined_late}, {"confined-early", confined_early}, {"closed", closed}, {"signals", signals}, {"loads", loads}, {"asked", asked}, {"crowd", crowd}, {"storm", storm},
             {"named", named}, {"begun", begun}, {"symmetric", symmetric}, {"opaque", opaque}, {"opaque-kept", opaque_kept}};
  for (int i = 0; i < LEN; i++) text[i] = i * 7;
  for (int i = 4; i < count; i++) {
    unsigned at = 0;
    while (at < sizeof all / sizeof *all && strcmp(all[at].name, arguments[i])) at++;
    CHECK(at < sizeof all / sizeof *all, "there is no %s", arguments[i]);
    all[at].run();
    printf("%s ok\n", arguments[i]);
    fflush(stdout);
  }
  return 0;
}
