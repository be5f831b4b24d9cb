// TLS between two library contexts of one process, over memory: one end has OpenSSL's default provider alone, the other
// prefers Sealane's.
//   provider_tls FOLDER CONFIGURATION [records|kept]
// Every suite of AES and ChaCha20 of TLS 1.2 and 1.3, with Sealane at either end, CBC also without encrypt-then-MAC, with
// keys that are changed in mid-connection and sessions that are resumed. With `records`: CBC without encrypt-then-MAC from
// TLS 1.0 to 1.2, with text of many lengths, and records that are wrong in one byte, at every place. Each line says how many
// contexts Sealane made. With `kept`, where keys are those of the keeper: no CBC without encrypt-then-MAC.
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(int is_so, const char *about, const char *what) {
  if (is_so) return;
  fprintf(stderr, "%s: %s\n", about, what);
  ERR_print_errors_fp(stderr);
  exit(1);
}

static OSSL_LIB_CTX *plain, *ours;

static size_t contexts(void) {
  static OSSL_PROVIDER *provider;
  if (!provider) provider = OSSL_PROVIDER_load(ours, "sealane");
  size_t n = 0;
  OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t("contexts", &n), OSSL_PARAM_construct_end()};
  need(provider && OSSL_PROVIDER_get_params(provider, params), "provider", "does not say how many contexts it made");
  return n;
}

static X509 *certificate(OSSL_LIB_CTX *lib, EVP_PKEY *key) {
  X509 *cert = X509_new_ex(lib, NULL);
  X509_set_version(cert, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), 0);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  X509_set_pubkey(cert, key);
  X509_NAME *name = X509_NAME_new();
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0);
  X509_set_subject_name(cert, name), X509_set_issuer_name(cert, name);
  X509_NAME_free(name);
  need(X509_sign(cert, key, EVP_sha256()) > 0, "certificate", "cannot be signed");
  return cert;
}

static SSL_CTX *side(OSSL_LIB_CTX *lib, int is_server, int version, const char *suite, int etm) {
  SSL_CTX *ctx = SSL_CTX_new_ex(lib, NULL, is_server ? TLS_server_method() : TLS_client_method());
  need(ctx != NULL, suite, "no context");
  SSL_CTX_set_min_proto_version(ctx, version), SSL_CTX_set_max_proto_version(ctx, version);
  SSL_CTX_set_security_level(ctx, 0);
  need(version == TLS1_3_VERSION ? SSL_CTX_set_ciphersuites(ctx, suite) : SSL_CTX_set_cipher_list(ctx, suite), suite,
       "is not known");
  SSL_CTX_set_options(ctx, SSL_OP_ALLOW_CLIENT_RENEGOTIATION | (etm ? 0 : SSL_OP_NO_ENCRYPT_THEN_MAC));
  SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
  if (is_server) {
    // Made once for each context and type: an RSA key takes longer than all of the rest.
    static EVP_PKEY *keys[2][2];
    static X509 *certs[2][2];
    int i = lib == ours, k = strstr(suite, "ECDSA") != NULL;
    if (!keys[i][k]) {
      keys[i][k] = k ? EVP_PKEY_Q_keygen(lib, NULL, "EC", "P-256") : EVP_PKEY_Q_keygen(lib, NULL, "RSA", (size_t)2048);
      certs[i][k] = certificate(lib, keys[i][k]);
    }
    need(SSL_CTX_use_certificate(ctx, certs[i][k]) && SSL_CTX_use_PrivateKey(ctx, keys[i][k]), suite, "no key");
  }
  return ctx;
}

// Lets one end do what it can; 1: it is done, 0: it waits for the other end, -1: it has failed. The error is asked for at once,
// because a BIO in memory forgets why it had nothing when the other end writes to it.
static int advance(SSL *ssl) {
  int done = SSL_do_handshake(ssl);
  return done == 1 ? 1 : SSL_get_error(ssl, done) == SSL_ERROR_WANT_READ ? 0 : -1;
}

// Lets both ends do what they can, until both are done or one fails.
static int handshake(SSL *a, SSL *b) {
  for (int i = 0; i < 50; i++) {
    int ra = advance(a), rb = advance(b);
    if (ra < 0 || rb < 0) return 0;
    if (ra && rb) return 1;
  }
  return 0;
}

static void pass(SSL *from, SSL *to, size_t len, const char *about) {
  static unsigned char sent[40000], got[40000];
  for (size_t i = 0; i < len; i++) sent[i] = i * 31 + len;
  size_t done = 0, n = 0;
  need(SSL_write_ex(from, sent, len, &n) && n == len, about, "cannot write");
  while (done < len) {
    need(SSL_read_ex(to, got + done, len - done, &n), about, "cannot read");
    done += n;
  }
  need(!memcmp(sent, got, len), about, "text differs");
}

static SSL_SESSION *last_session;

static int keep_session(SSL *ssl, SSL_SESSION *session) {
  (void)ssl;
  SSL_SESSION_free(last_session);
  last_session = session;
  return 1;
}

static void connection(SSL_CTX *sctx, SSL_CTX *cctx, SSL_SESSION *resumed, int version, const char *about) {
  SSL *server = SSL_new(sctx), *client = SSL_new(cctx);
  BIO *to_server, *to_client;
  need(server && client && BIO_new_bio_pair(&to_server, 1 << 17, &to_client, 1 << 17), about, "no connection");
  SSL_set_bio(server, to_client, to_client), SSL_set_bio(client, to_server, to_server);
  SSL_set_accept_state(server), SSL_set_connect_state(client);
  if (resumed) need(SSL_set_session(client, resumed), about, "no session");
  need(handshake(client, server), about, "no handshake");
  if (resumed) need(SSL_session_reused(client), about, "the session is not resumed");
  static const size_t lengths[] = {1, 15, 16, 17, 47, 48, 49, 255, 256, 1000, 16384, 40000};
  for (int turn = 0; turn < 2; turn++) {
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
      pass(client, server, lengths[i], about);
      pass(server, client, lengths[i], about);
    }
    if (turn) break;
    if (version == TLS1_3_VERSION) {
      need(SSL_key_update(client, SSL_KEY_UPDATE_REQUESTED) && SSL_key_update(server, SSL_KEY_UPDATE_NOT_REQUESTED), about,
           "no change of keys");
    } else {
      need(SSL_renegotiate(client), about, "no renegotiation");
      // The client's Finished may come before the server reads; both go on until nothing is left to do.
      unsigned char byte;
      size_t n;
      for (int i = 0; i < 20 && SSL_renegotiate_pending(client); i++) {
        SSL_do_handshake(client);
        SSL_read_ex(server, &byte, 1, &n);
      }
      need(!SSL_renegotiate_pending(client), about, "the renegotiation does not end");
    }
  }
  SSL_shutdown(client), SSL_shutdown(server);
  SSL_free(client), SSL_free(server);
}

// Both sides of a test's connections, and the contexts that Sealane had made before it.
struct sides {
  SSL_CTX *server, *client;
  size_t before;
};

static struct sides begin_test(int version, const char *name, int etm, int server_is_ours) {
  struct sides s = {.before = contexts()};
  s.server = side(server_is_ours ? ours : plain, 1, version, name, etm);
  s.client = side(server_is_ours ? plain : ours, 0, version, name, etm);
  SSL_CTX_set_session_cache_mode(s.client, SSL_SESS_CACHE_CLIENT);
  SSL_CTX_sess_set_new_cb(s.client, keep_session);
  return s;
}

// The session that the connection has left.
static SSL_SESSION *take_session(const char *about) {
  need(last_session != NULL, about, "no session to resume");
  SSL_SESSION *session = last_session;
  last_session = NULL;
  return session;
}

static void end_test(struct sides *s, SSL_SESSION *session, const char *about) {
  SSL_SESSION_free(session), SSL_SESSION_free(last_session);
  last_session = NULL;
  SSL_CTX_free(s->server), SSL_CTX_free(s->client);
  size_t made = contexts() - s->before;
  need(made > 0, about, "sealane took no part");
  printf("%s: ok, %zu contexts\n", about, made);
}

static void suite(int version, const char *name, int etm, int server_is_ours) {
  char about[200];
  snprintf(about, sizeof about, "%s %s%s, sealane at the %s", version == TLS1_3_VERSION ? "TLS1.3" : "TLS1.2", name,
           etm ? "" : " without encrypt-then-MAC", server_is_ours ? "server" : "client");
  struct sides s = begin_test(version, name, etm, server_is_ours);
  connection(s.server, s.client, NULL, version, about);
  SSL_SESSION *session = take_session(about);
  connection(s.server, s.client, session, version, about);
  end_test(&s, session, about);
}

// Both ends of a connection whose records can be looked at on their way.
struct ends {
  SSL *client, *server;
  BIO *to_server, *to_client;
};

static struct ends connect_ends(SSL_CTX *sctx, SSL_CTX *cctx, SSL_SESSION *resumed, const char *about) {
  struct ends e = {SSL_new(cctx), SSL_new(sctx), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem())};
  need(e.client && e.server && e.to_server && e.to_client, about, "no connection");
  // Each end has one of its own.
  BIO_up_ref(e.to_server), BIO_up_ref(e.to_client);
  SSL_set_bio(e.client, e.to_client, e.to_server), SSL_set_bio(e.server, e.to_server, e.to_client);
  SSL_set_connect_state(e.client), SSL_set_accept_state(e.server);
  if (resumed) need(SSL_set_session(e.client, resumed), about, "no session");
  need(handshake(e.client, e.server), about, "no handshake");
  return e;
}

static void end_both(struct ends *e) { SSL_free(e->client), SSL_free(e->server); }

// Whether the last call has failed for this reason, which may stand behind others.
static int told(int reason) {
  int found = 0;
  for (unsigned long code; (code = ERR_get_error()) != 0;) found |= ERR_GET_REASON(code) == reason;
  return found;
}

// A record of `len` bytes with one byte changed, at every place behind its header: each is refused as one with a wrong MAC.
static void spoil(SSL_CTX *sctx, SSL_CTX *cctx, SSL_SESSION *session, size_t len, const char *about) {
  static unsigned char text[300], got[300];
  for (size_t at = 5;; at++) {
    // An alert makes a session useless, so each connection has a copy.
    SSL_SESSION *copy = SSL_SESSION_dup(session);
    struct ends e = connect_ends(sctx, cctx, copy, about);
    SSL_SESSION_free(copy);
    size_t n = 0;
    need(SSL_write_ex(e.client, text, len, &n) && n == len, about, "cannot write");
    char *bytes = NULL;
    long have = BIO_get_mem_data(e.to_server, &bytes);
    need(have > 5 && bytes, about, "no record");
    if (at >= (size_t)have) {
      end_both(&e);
      break;
    }
    bytes[at] ^= 1 << at % 8;
    ERR_clear_error();
    need(!SSL_read_ex(e.server, got, sizeof got, &n), about, "takes a spoilt record");
    need(told(SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC), about, "refuses a spoilt record for another reason");
    need(!SSL_read_ex(e.client, got, sizeof got, &n), about, "reads on after an alert");
    need(told(SSL_AD_REASON_OFFSET + SSL_AD_BAD_RECORD_MAC), about, "is told of something else");
    end_both(&e);
  }
}

static void records(int version, const char *name, int server_is_ours) {
  char about[200];
  snprintf(about, sizeof about, "records of %s, version %x, sealane at the %s", name, version,
           server_is_ours ? "server" : "client");
  struct sides s = begin_test(version, name, 0, server_is_ours);
  struct ends e = connect_ends(s.server, s.client, NULL, about);
  for (size_t len = 1; len < 300; len++) pass(e.client, e.server, len, about), pass(e.server, e.client, len, about);
  for (size_t len = 16300; len <= 16384; len += 7) pass(e.client, e.server, len, about), pass(e.server, e.client, len, about);
  end_both(&e);
  SSL_SESSION *session = take_session(about);
  // In TLS 1.0 an empty record comes before that of a text. It is not the one that is spoilt.
  SSL_CTX_set_options(s.client, SSL_OP_DONT_INSERT_EMPTY_FRAGMENTS);
  spoil(s.server, s.client, session, 1, about);
  spoil(s.server, s.client, session, 50, about);
  end_test(&s, session, about);
}

static void all_records(void) {
  static const char *old[] = {"AES128-SHA", "AES256-SHA"};
  static const char *new[] = {"AES128-SHA", "AES256-SHA256", "ECDHE-RSA-AES256-SHA384"};
  for (int server_is_ours = 0; server_is_ours < 2; server_is_ours++) {
    for (int i = 0; i < 2; i++) {
      records(TLS1_VERSION, old[i], server_is_ours);
      records(TLS1_1_VERSION, old[i], server_is_ours);
    }
    for (int i = 0; i < 3; i++) records(TLS1_2_VERSION, new[i], server_is_ours);
  }
}

int main(int argc, char **argv) {
  int kept = argc == 4 && !strcmp(argv[3], "kept");
  if (argc != 3 && (argc != 4 || (!kept && strcmp(argv[3], "records")))) return 2;
  static const char *suites12[] = {
      "AES128-SHA", "AES256-SHA", "AES128-SHA256", "AES256-SHA256", "ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES256-SHA",
      "ECDHE-RSA-AES128-SHA256", "ECDHE-RSA-AES256-SHA384", "ECDHE-ECDSA-AES256-SHA384", "AES128-GCM-SHA256",
      "AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "AES128-CCM", "AES256-CCM",
      "AES128-CCM8", "AES256-CCM8", "ECDHE-ECDSA-AES128-CCM", "ECDHE-ECDSA-AES256-CCM8", "ECDHE-RSA-CHACHA20-POLY1305",
      "ECDHE-ECDSA-CHACHA20-POLY1305"};
  static const char *suites13[] = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256",
                                   "TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"};
  plain = OSSL_LIB_CTX_new(), ours = OSSL_LIB_CTX_new();
  need(OSSL_PROVIDER_set_default_search_path(ours, argv[1]) && OSSL_LIB_CTX_load_config(ours, argv[2]), "sealane",
       "cannot be loaded");
  need(EVP_set_default_properties(ours, "?provider=sealane"), "sealane", "cannot be preferred");
  if (argc == 4 && !kept) {
    all_records();
    return 0;
  }
  for (int server_is_ours = 0; server_is_ours < 2; server_is_ours++) {
    for (size_t i = 0; i < sizeof suites12 / sizeof *suites12; i++) {
      suite(TLS1_2_VERSION, suites12[i], 1, server_is_ours);
      // The keeper does not compute MACs of records that CBC has decrypted.
      if (!kept && strstr(suites12[i], "GCM") == NULL && strstr(suites12[i], "CCM") == NULL && strstr(suites12[i], "CHACHA") == NULL)
        suite(TLS1_2_VERSION, suites12[i], 0, server_is_ours);
    }
    for (size_t i = 0; i < sizeof suites13 / sizeof *suites13; i++) suite(TLS1_3_VERSION, suites13[i], 1, server_is_ours);
  }
  return 0;
}
