// A provider for OpenSSL that hands everything on to another one, and counts the calls that give its ciphers, digests and MACs a text, or
// ask them for the end of one.
//
// COUNTED is the module of the other provider, COUNTS the file to which the counts are added when the process ends: a line for each
// algorithm that was called, with the kind, the names, and the number of calls. For x86-64: whatever their arguments are, functions are
// called by way of a few instructions that count.
#include <dlfcn.h>
#include <openssl/core.h>
#include <openssl/core_dispatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALGORITHMS 256
#define TABLES 64
#define CODE_LEN (1 << 20)

// movabs r11, COUNTER; lock inc qword [r11]; movabs r11, FUNCTION; jmp r11
static const unsigned char hop[] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x49, 0xff, 0x03,
                                    0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};
enum { COUNTER_AT = 2, FUNCTION_AT = 16 };

static struct { int kind; const char *names; unsigned long calls; } counted[ALGORITHMS];
static struct { const OSSL_ALGORITHM *real; OSSL_ALGORITHM *ours; } tables[TABLES];
static size_t algorithms, known, code_len;
static unsigned char *code;
static OSSL_FUNC_provider_query_operation_fn *real_query;

static void die(const char *what) {
  fprintf(stderr, "openssl_counted: %s\n", what);
  abort();
}

static void *room(size_t count, size_t len) {
  void *memory = calloc(count, len);
  if (!memory) die("no memory");
  return memory;
}

static void (*counting(void (*function)(void), unsigned long *counter))(void) {
  if (code_len + sizeof hop > CODE_LEN) die("too many functions");
  unsigned char *place = code + code_len;
  memcpy(place, hop, sizeof hop);
  memcpy(place + COUNTER_AT, &counter, sizeof counter);
  memcpy(place + FUNCTION_AT, &function, sizeof function);
  code_len += sizeof hop;
  return (void (*)(void))place;
}

static int computes(int operation, int function) {
  switch (operation) {
    case OSSL_OP_CIPHER:
      return function == OSSL_FUNC_CIPHER_UPDATE || function == OSSL_FUNC_CIPHER_FINAL || function == OSSL_FUNC_CIPHER_CIPHER;
    case OSSL_OP_DIGEST:
      return function == OSSL_FUNC_DIGEST_UPDATE || function == OSSL_FUNC_DIGEST_FINAL || function == OSSL_FUNC_DIGEST_DIGEST;
    default:
      return function == OSSL_FUNC_MAC_UPDATE || function == OSSL_FUNC_MAC_FINAL;
  }
}

static const OSSL_ALGORITHM *query(void *context, int operation, int *no_cache) {
  const OSSL_ALGORITHM *real = real_query(context, operation, no_cache);
  if (!real || (operation != OSSL_OP_CIPHER && operation != OSSL_OP_DIGEST && operation != OSSL_OP_MAC)) return real;
  for (size_t i = 0; i < known; i++) if (tables[i].real == real) return tables[i].ours;
  size_t count = 0;
  while (real[count].algorithm_names) count++;
  OSSL_ALGORITHM *ours = room(count + 1, sizeof *ours);
  for (size_t i = 0; i < count; i++) {
    if (algorithms == ALGORITHMS) die("too many algorithms");
    counted[algorithms].kind = operation;
    counted[algorithms].names = real[i].algorithm_names;
    unsigned long *counter = &counted[algorithms++].calls;
    size_t functions = 0;
    while (real[i].implementation[functions].function_id) functions++;
    OSSL_DISPATCH *dispatch = room(functions + 1, sizeof *dispatch);
    for (size_t j = 0; j < functions; j++) {
      dispatch[j] = real[i].implementation[j];
      if (computes(operation, dispatch[j].function_id)) dispatch[j].function = counting(dispatch[j].function, counter);
    }
    ours[i] = real[i];
    ours[i].implementation = dispatch;
  }
  if (known == TABLES) die("too many tables");
  tables[known].real = real;
  tables[known++].ours = ours;
  return ours;
}

static void tell(void) {
  FILE *file = fopen(getenv("COUNTS"), "a");
  if (!file) die("COUNTS cannot be written");
  for (size_t i = 0; i < algorithms; i++)
    if (counted[i].calls) fprintf(file, "%d\t%s\t%lu\n", counted[i].kind, counted[i].names, counted[i].calls);
  fclose(file);
}

int OSSL_provider_init(const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *in, const OSSL_DISPATCH **out, void **context) {
  static OSSL_DISPATCH ours[32];
  if (!getenv("COUNTED") || !getenv("COUNTS")) die("COUNTED or COUNTS is missing");
  if (real_query) die("loaded twice");
  void *module = dlopen(getenv("COUNTED"), RTLD_NOW | RTLD_LOCAL);
  if (!module) die(dlerror());
  OSSL_provider_init_fn *init = (OSSL_provider_init_fn *)dlsym(module, "OSSL_provider_init");
  const OSSL_DISPATCH *real;
  if (!init) die("it is no provider");
  if (!init(handle, in, &real, context)) return 0;
  code = mmap(NULL, CODE_LEN, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED) die("no memory for code");
  for (size_t i = 0; real[i].function_id; i++) {
    if (i + 1 == sizeof ours / sizeof *ours) die("too many functions of the provider");
    ours[i] = real[i];
    if (real[i].function_id == OSSL_FUNC_PROVIDER_QUERY_OPERATION) {
      real_query = (OSSL_FUNC_provider_query_operation_fn *)real[i].function;
      ours[i].function = (void (*)(void))query;
    }
  }
  *out = ours;
  return atexit(tell) == 0;
}
