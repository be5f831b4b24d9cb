// Eight messages by one pipeline of the OpenSSL provider, and one by one with OpenSSL's default provider, by turns.
//   openssl_pipelines CONFIGURATION ROUNDS [BYTES [PIPES]]
// CONFIGURATION loads both providers. It prints a line for each round: nanoseconds a message with default, with sealane one
// by one, and by pipeline. OpenSSL 3.5 or later; other versions exit with 77.
//   cc -O2 -o openssl_pipelines openssl_pipelines.c -lcrypto
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PIPES(name, ...) extern int name(EVP_CIPHER_CTX *, __VA_ARGS__) __attribute__((weak))
PIPES(EVP_CipherPipelineEncryptInit, const EVP_CIPHER *, const unsigned char *, size_t, size_t, const unsigned char **, size_t);
PIPES(EVP_CipherPipelineUpdate, unsigned char **, size_t *, const size_t *, const unsigned char **, const size_t *);
PIPES(EVP_CipherPipelineFinal, unsigned char **, size_t *, const size_t *);

enum { MOST = 32, TIMES = 20000, AAD = 13, TAG = 16 };

static size_t bytes = 1400, pipes = 8;
static unsigned char text[MOST][65536], aad[MOST][AAD], iv[MOST][12], tag[MOST][TAG], key[16];

static void need(int ok, const char *what) {
  if (!ok) fprintf(stderr, "%s\n", what), exit(1);
}

// CPU time, because a busy machine would count otherwise.
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

static double one_by_one(EVP_CIPHER_CTX *ctx) {
  double began = now();
  for (int n = 0; n < TIMES; n++)
    for (size_t i = 0; i < pipes; i++) {
      int len;
      need(EVP_EncryptInit_ex(ctx, NULL, NULL, NULL, iv[i]) && EVP_EncryptUpdate(ctx, NULL, &len, aad[i], AAD) &&
             EVP_EncryptUpdate(ctx, text[i], &len, text[i], bytes) && EVP_EncryptFinal_ex(ctx, text[i], &len) &&
             EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG, tag[i]),
           "a message cannot be sealed");
    }
  return (now() - began) / TIMES / pipes;
}

static double by_pipeline(EVP_CIPHER_CTX *ctx) {
  const unsigned char *ivs[MOST], *aads[MOST], *in[MOST];
  unsigned char *out[MOST], *tags[MOST], **all = tags;
  size_t aad_len[MOST], len[MOST], done[MOST];
  for (size_t i = 0; i < pipes; i++)
    ivs[i] = iv[i], aads[i] = aad[i], in[i] = out[i] = text[i], tags[i] = tag[i], aad_len[i] = AAD, len[i] = bytes;
  OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_ptr("pipeline-tag", (void **)&all, TAG), OSSL_PARAM_construct_end()};
  double began = now();
  for (int n = 0; n < TIMES; n++)
    need(EVP_CipherPipelineEncryptInit(ctx, NULL, NULL, 0, pipes, ivs, 12) &&
           EVP_CipherPipelineUpdate(ctx, NULL, done, NULL, aads, aad_len) &&
           EVP_CipherPipelineUpdate(ctx, out, done, len, in, len) && EVP_CipherPipelineFinal(ctx, out, done, len) &&
           EVP_CIPHER_CTX_get_params(ctx, params),
         "a pipeline cannot be sealed");
  return (now() - began) / TIMES / pipes;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  if (!EVP_CipherPipelineUpdate) return 77;
  if (argc > 3) bytes = strtoul(argv[3], NULL, 10);
  if (argc > 4) pipes = strtoul(argv[4], NULL, 10);
  if (bytes > sizeof *text || pipes > MOST) return 2;
  OSSL_LIB_CTX *lib = OSSL_LIB_CTX_new();
  need(OSSL_LIB_CTX_load_config(lib, argv[1]), "the configuration cannot be loaded");
  EVP_CIPHER_CTX *ctx[3];
  for (int i = 0; i < 3; i++) {
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(lib, "AES-128-GCM", i ? "provider=sealane" : "provider=default");
    ctx[i] = EVP_CIPHER_CTX_new();
    const unsigned char *ivs[MOST];
    for (size_t n = 0; n < pipes; n++) ivs[n] = iv[n];
    need(cipher && (i < 2 ? EVP_EncryptInit_ex(ctx[i], cipher, NULL, key, NULL)
                          : EVP_CipherPipelineEncryptInit(ctx[i], cipher, key, sizeof key, pipes, ivs, 12)),
         "no cipher");
  }
  printf("default,sealane,pipeline\n");
  for (long n = strtol(argv[2], NULL, 10); n > 0; n--) {
    double a = one_by_one(ctx[0]), b = one_by_one(ctx[1]), c = by_pipeline(ctx[2]);
    printf("%.1f,%.1f,%.1f\n", a, b, c);
  }
  return 0;
}
