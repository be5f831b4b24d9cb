// Uses keys of a keeper by OpenSSL's store, in all situations in which a program may be.
//   provider_keys FOLDER CONFIGURATION KEYS WHAT...
// FOLDER has sealane.so, CONFIGURATION loads it beside `default`, KEYS has the public parts of the keeper's keys rsa, ec and ed, as
// rsa.pub and so on, and its socket. WHAT: parts, lists, ciphers, texts, contexts, threads, forks, closed, signals, loads, lazy,
// confined, users (by root); early, confined-early (where CONFIGURATION connects at load); or asked, storm, crowd, which read lines:
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
             {"users", users}, {"early", early}, {"confined", confined_late}, {"confined-early", confined_early}, {"closed", closed}, {"signals", signals}, {"loads", loads}, {"asked", asked}, {"crowd", crowd}, {"storm", storm}};
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
