/*
 * A flat interface to intel-ipsec-mb.
 *
 * The library's manager and job are large structures whose layout changes between versions, and most of its API is
 * macros over function pointers inside them. This file is compiled against the installed header, so the layout is
 * always right, and gives Rust (src/ffi.rs) a few functions and two small structures of our own.
 *
 * Nothing here allocates, and nothing keeps a pointer after it returns: every call flushes what it has submitted.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <intel-ipsec-mb.h>

/* The most operations of one call; src/ffi.rs has the same number. IMB_MAX_BURST_SIZE of the library is 128. */
#define SLMB_MAX_OPS 64

/* Room that src/ffi.rs gives to the library's GCM key. */
#define SLMB_GCM_KEY_LEN 1536

/* Room that src/ffi.rs gives to the library's state of a GCM message. */
#define SLMB_GCM_CONTEXT_LEN 128

/* The algorithm of a job; src/ffi.rs has the same numbers. */
enum slmb_alg {
	SLMB_HMAC_MD5 = 0,
	SLMB_HMAC_SHA1,
	SLMB_HMAC_SHA224,
	SLMB_HMAC_SHA256,
	SLMB_HMAC_SHA384,
	SLMB_HMAC_SHA512,
	SLMB_SHA1,
	SLMB_SHA224,
	SLMB_SHA256,
	SLMB_SHA384,
	SLMB_SHA512,
	SLMB_CMAC,
	SLMB_POLY1305,
	SLMB_AES_CBC,
	SLMB_AES_CTR,
	SLMB_AES_ECB,
	SLMB_DES_CBC,
	SLMB_DES3_CBC,
	SLMB_AES_CCM,
	SLMB_CHACHA20_POLY1305,
	SLMB_ALGS
};

/* One operation; src/ffi.rs has the same fields. */
struct slmb_op {
	const uint8_t *src;
	uint8_t *dst;
	uint64_t len;
	/*
	 * AES: encryption and decryption schedules. CMAC: schedule and the two subkeys. HMAC: inner and outer state.
	 * DES: schedule; triple DES: three schedules. GCM: the library's key. Others: the key itself.
	 */
	const void *key[3];
	const uint8_t *iv;
	const uint8_t *aad;
	uint64_t aad_len;
	uint8_t *tag; /* the full tag or digest is written here */
	uint32_t key_len;
	uint8_t iv_len;
	uint8_t tag_len;
	uint8_t done; /* out: 1 when the library has completed it */
	uint8_t pad;
};

_Static_assert(sizeof(struct slmb_op) == 88, "src/ffi.rs declares the same structure");
_Static_assert(sizeof(struct gcm_context_data) <= SLMB_GCM_CONTEXT_LEN, "src/ffi.rs gives a GCM message this much room");
_Static_assert(sizeof(struct gcm_key_data) <= SLMB_GCM_KEY_LEN, "src/ffi.rs gives a GCM key this much room");

static const struct {
	IMB_HASH_ALG hash;
	uint64_t tag_len;
	int sync; /* the synchronous hash burst takes it, in 1.3 and later */
} hashes[SLMB_POLY1305 + 1] = {
	[SLMB_HMAC_MD5] = { IMB_AUTH_MD5, 16, 0 },
	[SLMB_HMAC_SHA1] = { IMB_AUTH_HMAC_SHA_1, 20, 1 },
	[SLMB_HMAC_SHA224] = { IMB_AUTH_HMAC_SHA_224, 28, 1 },
	[SLMB_HMAC_SHA256] = { IMB_AUTH_HMAC_SHA_256, 32, 1 },
	[SLMB_HMAC_SHA384] = { IMB_AUTH_HMAC_SHA_384, 48, 1 },
	[SLMB_HMAC_SHA512] = { IMB_AUTH_HMAC_SHA_512, 64, 1 },
	[SLMB_SHA1] = { IMB_AUTH_SHA_1, 20, 0 },
	[SLMB_SHA224] = { IMB_AUTH_SHA_224, 28, 0 },
	[SLMB_SHA256] = { IMB_AUTH_SHA_256, 32, 0 },
	[SLMB_SHA384] = { IMB_AUTH_SHA_384, 48, 0 },
	[SLMB_SHA512] = { IMB_AUTH_SHA_512, 64, 0 },
	[SLMB_CMAC] = { IMB_AUTH_AES_CMAC, 16, 0 }, /* or AES_CMAC_256, by the key's length */
	[SLMB_POLY1305] = { IMB_AUTH_POLY1305, 16, 0 },
};

unsigned slmb_version(void)
{
	return imb_get_version();
}

size_t slmb_manager_len(void)
{
	return imb_get_mb_mgr_size();
}

/*
 * Makes a manager in `mem` (64-byte aligned, slmb_manager_len bytes) for the best code path of this CPU.
 * Returns the name of the path, or NULL and the reason in `why`.
 */
const char *slmb_manager_init(void *mem, const char **why)
{
	IMB_ARCH arch = IMB_ARCH_NONE;
	IMB_MGR *m = imb_set_pointers_mb_mgr(mem, 0, 1);

	*why = "the CPU lacks what intel-ipsec-mb needs (SSE4.2, AES-NI, PCLMULQDQ)";
	if (m == NULL)
		return NULL;
	init_mb_mgr_auto(m, &arch);
#ifdef IMB_FEATURE_AESNI_EMU
	if (m->features & IMB_FEATURE_AESNI_EMU)
		return NULL;
#endif
#ifdef IMB_FEATURE_SELF_TEST
	if ((m->features & IMB_FEATURE_SELF_TEST) && !(m->features & IMB_FEATURE_SELF_TEST_PASS)) {
		*why = "intel-ipsec-mb failed its own self-test on this CPU";
		return NULL;
	}
#endif
	if (imb_get_errno(m) != 0)
		return NULL;
	/* Later versions have fewer paths and other numbers, so only names that all versions have are used. */
	if (arch == IMB_ARCH_AVX512) {
		const uint64_t type2 = IMB_FEATURE_VAES | IMB_FEATURE_VPCLMULQDQ | IMB_FEATURE_GFNI | IMB_FEATURE_AVX512_IFMA;

		return (m->features & type2) == type2 ? "AVX-512 with VAES" : "AVX-512";
	}
	if (arch == IMB_ARCH_AVX2)
		return "AVX2";
	return arch == IMB_ARCH_NONE ? NULL : "SSE or AVX";
}

void slmb_wipe(void *mem, size_t len)
{
	imb_clear_mem(mem, len);
}

/* Expands an AES key of 16, 24 or 32 bytes into `enc` and `dec`, 240 bytes each, 16-byte aligned. */
void slmb_aes_expand(IMB_MGR *m, const uint8_t *key, size_t key_len, uint8_t *enc, uint8_t *dec)
{
	if (key_len == 16)
		IMB_AES_KEYEXP_128(m, key, enc, dec);
	else if (key_len == 24)
		IMB_AES_KEYEXP_192(m, key, enc, dec);
	else
		IMB_AES_KEYEXP_256(m, key, enc, dec);
}

/* Derives the two subkeys of CMAC from an encryption schedule for a key of 16 or 32 bytes. */
void slmb_cmac_subkeys(IMB_MGR *m, const uint8_t *enc, size_t key_len, uint8_t *k1, uint8_t *k2)
{
	if (key_len == 16)
		IMB_AES_CMAC_SUBKEY_GEN_128(m, enc, k1, k2);
	else
		IMB_AES_CMAC_SUBKEY_GEN_256(m, enc, k1, k2);
}

/* Derives the three keys of XCBC (RFC 3566); `k1` is an expanded schedule. */
void slmb_xcbc_keys(IMB_MGR *m, const uint8_t *key, uint8_t *k1, uint8_t *k2, uint8_t *k3)
{
	IMB_AES_XCBC_KEYEXP(m, key, k1, k2, k3);
}

/* Expands an 8-byte DES key into a schedule of 128 bytes. */
void slmb_des_expand(IMB_MGR *m, const uint8_t *key, uint64_t *schedule)
{
	IMB_DES_KEYSCHED(m, schedule, key);
}

/* Compresses one block of an HMAC's hash and writes the state in the form that HMAC jobs take. */
void slmb_hmac_state(IMB_MGR *m, uint32_t alg, const uint8_t *block, uint8_t *state)
{
	switch (alg) {
	case SLMB_HMAC_MD5:
		IMB_MD5_ONE_BLOCK(m, block, state);
		break;
	case SLMB_HMAC_SHA1:
		IMB_SHA1_ONE_BLOCK(m, block, state);
		break;
	case SLMB_HMAC_SHA224:
		IMB_SHA224_ONE_BLOCK(m, block, state);
		break;
	case SLMB_HMAC_SHA256:
		IMB_SHA256_ONE_BLOCK(m, block, state);
		break;
	case SLMB_HMAC_SHA384:
		IMB_SHA384_ONE_BLOCK(m, block, state);
		break;
	case SLMB_HMAC_SHA512:
		IMB_SHA512_ONE_BLOCK(m, block, state);
		break;
	}
}

/* Fills in the fields of a job that authenticates or hashes. */
static void fill_hash(IMB_JOB *j, uint32_t alg, const struct slmb_op *op)
{
	j->cipher_mode = IMB_CIPHER_NULL;
	j->cipher_direction = IMB_DIR_ENCRYPT;
	j->chain_order = IMB_ORDER_HASH_CIPHER;
	j->hash_alg = hashes[alg].hash;
	j->src = op->src;
	j->dst = NULL;
	j->cipher_start_src_offset_in_bytes = 0;
	j->msg_len_to_cipher_in_bytes = 0;
	j->hash_start_src_offset_in_bytes = 0;
	j->msg_len_to_hash_in_bytes = op->len;
	j->auth_tag_output = op->tag;
	j->auth_tag_output_len_in_bytes = hashes[alg].tag_len;
	if (alg <= SLMB_HMAC_SHA512) {
		j->u.HMAC._hashed_auth_key_xor_ipad = op->key[0];
		j->u.HMAC._hashed_auth_key_xor_opad = op->key[1];
	} else if (alg == SLMB_CMAC) {
		if (op->key_len == 32)
			j->hash_alg = IMB_AUTH_AES_CMAC_256;
		j->u.CMAC._key_expanded = op->key[0];
		j->u.CMAC._skey1 = op->key[1];
		j->u.CMAC._skey2 = op->key[2];
	} else if (alg == SLMB_POLY1305) {
		j->u.POLY1305._key = op->key[0];
	}
}

/* Fills in the fields of a job that encrypts or decrypts, with or without authentication. */
static void fill_cipher(IMB_JOB *j, uint32_t alg, int encrypt, const struct slmb_op *op)
{
	j->cipher_direction = encrypt ? IMB_DIR_ENCRYPT : IMB_DIR_DECRYPT;
	j->chain_order = IMB_ORDER_CIPHER_HASH;
	j->hash_alg = IMB_AUTH_NULL;
	j->src = op->src;
	j->dst = op->dst;
	j->cipher_start_src_offset_in_bytes = 0;
	j->msg_len_to_cipher_in_bytes = op->len;
	j->hash_start_src_offset_in_bytes = 0;
	j->msg_len_to_hash_in_bytes = 0;
	j->iv = op->iv;
	j->iv_len_in_bytes = op->iv_len;
	j->enc_keys = op->key[0];
	j->dec_keys = op->key[1];
	j->key_len_in_bytes = op->key_len;
	j->auth_tag_output = op->tag;
	j->auth_tag_output_len_in_bytes = op->tag_len;
	switch (alg) {
	case SLMB_AES_CBC:
		j->cipher_mode = IMB_CIPHER_CBC;
		break;
	case SLMB_AES_CTR:
		j->cipher_mode = IMB_CIPHER_CNTR;
		break;
	case SLMB_AES_ECB:
		j->cipher_mode = IMB_CIPHER_ECB;
		break;
	case SLMB_DES_CBC:
		j->cipher_mode = IMB_CIPHER_DES;
		j->dec_keys = op->key[0];
		break;
	case SLMB_DES3_CBC:
		/* The library wants an array of three pointers: op->key is one, and it outlives the call. */
		j->cipher_mode = IMB_CIPHER_DES3;
		j->enc_keys = op->key;
		j->dec_keys = op->key;
		break;
	case SLMB_AES_CCM:
		j->cipher_mode = IMB_CIPHER_CCM;
		j->hash_alg = IMB_AUTH_AES_CCM;
		j->chain_order = encrypt ? IMB_ORDER_HASH_CIPHER : IMB_ORDER_CIPHER_HASH;
		j->msg_len_to_hash_in_bytes = op->len;
		j->u.CCM.aad = op->aad;
		j->u.CCM.aad_len_in_bytes = op->aad_len;
		break;
	case SLMB_CHACHA20_POLY1305:
		j->cipher_mode = IMB_CIPHER_CHACHA20_POLY1305;
		j->hash_alg = IMB_AUTH_CHACHA20_POLY1305;
		j->chain_order = encrypt ? IMB_ORDER_CIPHER_HASH : IMB_ORDER_HASH_CIPHER;
		j->msg_len_to_hash_in_bytes = op->len;
		j->u.CHACHA20_POLY1305.aad = op->aad;
		j->u.CHACHA20_POLY1305.aad_len_in_bytes = op->aad_len;
		break;
	}
}

/* Marks the operation of a completed job. */
static void collect(const IMB_JOB *j)
{
	struct slmb_op *op = j->user_data;

	op->done = j->status == IMB_STATUS_COMPLETED;
}

/*
 * Runs `n` operations (at most SLMB_MAX_OPS) in the order order[0], order[1], ... and sets `done` in each.
 * The caller has checked lengths: the library's own checks are left out because they cost 10 ns a job.
 */
void slmb_run(IMB_MGR *m, uint32_t alg, int encrypt, struct slmb_op *ops, const uint8_t *order, uint32_t n)
{
	uint32_t i, back = 0;
	IMB_JOB *j;

	if (alg >= SLMB_ALGS || n > SLMB_MAX_OPS)
		return;
	if (alg <= SLMB_POLY1305 && hashes[alg].sync) {
		IMB_JOB jobs[SLMB_MAX_OPS];

		for (i = 0; i < n; i++) {
			fill_hash(&jobs[i], alg, &ops[order[i]]);
			jobs[i].status = IMB_STATUS_BEING_PROCESSED;
			jobs[i].user_data = &ops[order[i]];
		}
		IMB_SUBMIT_HASH_BURST_NOCHECK(m, jobs, n, hashes[alg].hash);
		for (i = 0; i < n; i++)
			collect(&jobs[i]);
		return;
	}
	for (i = 0; i < n; i++) {
		j = IMB_GET_NEXT_JOB(m);
		if (alg <= SLMB_POLY1305)
			fill_hash(j, alg, &ops[order[i]]);
		else
			fill_cipher(j, alg, encrypt, &ops[order[i]]);
		j->user_data = &ops[order[i]];
		for (j = IMB_SUBMIT_JOB_NOCHECK(m); j != NULL; j = IMB_GET_COMPLETED_JOB(m)) {
			collect(j);
			back++;
		}
	}
	/* A flush walks through the lanes, so there is none once `back` has counted all jobs. */
	while (back < n && (j = IMB_FLUSH_JOB(m)) != NULL) {
		collect(j);
		back++;
	}
}

/* The functions of GCM under keys of one length, which belong to no manager; src/ffi.rs has the same fields. */
struct slmb_gcm_calls {
	aes_gcm_pre_t expand;
	aes_gcm_init_t start;
	aes_gcm_init_var_iv_t start_any;
	aes_gmac_update_t associated;
	aes_gcm_enc_dec_update_t encrypt;
	aes_gcm_enc_dec_update_t decrypt;
	aes_gcm_enc_dec_finalize_t end;
};

#define SLMB_GCM_CALLS(bits)                                                                                           \
	(struct slmb_gcm_calls)                                                                                        \
	{                                                                                                              \
		m->gcm##bits##_pre, m->gcm##bits##_init, m->gcm##bits##_init_var_iv, m->gmac##bits##_update, m->gcm##bits##_enc_update,    \
			m->gcm##bits##_dec_update, m->gcm##bits##_enc_finalize                                         \
	}

_Static_assert(sizeof(struct slmb_gcm_calls) == 7 * sizeof(void (*)(void)), "src/ffi.rs declares the same structure");

void slmb_gcm_calls(IMB_MGR *m, size_t key_len, struct slmb_gcm_calls *out)
{
	if (key_len == 16)
		*out = SLMB_GCM_CALLS(128);
	else if (key_len == 24)
		*out = SLMB_GCM_CALLS(192);
	else
		*out = SLMB_GCM_CALLS(256);
}

/* Counts fewer bytes of associated data than were hashed. */
void slmb_gcm_less_associated(struct gcm_context_data *ctx, uint64_t len)
{
	ctx->aad_length -= len;
}

/* Runs `n` GCM operations one after another: the parallelism is within each message. Tags are 16 bytes. */
void slmb_gcm(IMB_MGR *m, int encrypt, struct slmb_op *ops, uint32_t n)
{
	struct gcm_context_data ctx;
	uint32_t i;

	for (i = 0; i < n; i++) {
		struct slmb_op *op = &ops[i];
		aes_gcm_enc_dec_t run;

		if (op->key_len == 16)
			run = encrypt ? m->gcm128_enc : m->gcm128_dec;
		else if (op->key_len == 24)
			run = encrypt ? m->gcm192_enc : m->gcm192_dec;
		else
			run = encrypt ? m->gcm256_enc : m->gcm256_dec;
		run(op->key[0], &ctx, op->dst, op->src, op->len, op->iv, op->aad, op->aad_len, op->tag, 16);
		op->done = 1;
	}
	imb_clear_mem(&ctx, sizeof(ctx));
}
