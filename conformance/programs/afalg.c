/* Hashes and encrypts through AF_ALG and checks the answers: a program that knows nothing of Sealane.
 * cc -O2 [-static] -o afalg afalg.c
 *
 *   afalg               known answers: SHA-256 of "abc", AES-128-CBC and AES-128-GCM of published vectors
 *   afalg sha256 FILE   prints the file's digest as sha256sum does
 *   afalg slow          known answers while another thread's sendfile waits for a pipe that nobody writes to; then a
 *                       signal ends its wait
 *
 * Exit status: 0 all right, 1 a wrong answer, 2 AF_ALG could not be used.
 */
#include <errno.h>
#include <linux/if_alg.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SOL_ALG
#define SOL_ALG 279
#endif

static void die(const char *what)
{
	fprintf(stderr, "afalg: %s: %s\n", what, strerror(errno));
	exit(2);
}

/* A bound socket with its key set, and an operation socket of it. */
static int open_op(const char *type, const char *name, const void *key, size_t key_len, unsigned tag_len)
{
	struct sockaddr_alg addr = { .salg_family = AF_ALG };
	int tfm = socket(AF_ALG, SOCK_SEQPACKET, 0), op;

	if (tfm < 0)
		die("socket");
	strcpy((char *)addr.salg_type, type);
	strcpy((char *)addr.salg_name, name);
	if (bind(tfm, (struct sockaddr *)&addr, sizeof addr))
		die(name);
	if (key && setsockopt(tfm, SOL_ALG, ALG_SET_KEY, key, key_len))
		die("ALG_SET_KEY");
	if (tag_len && setsockopt(tfm, SOL_ALG, ALG_SET_AEAD_AUTHSIZE, NULL, tag_len))
		die("ALG_SET_AEAD_AUTHSIZE");
	op = accept(tfm, NULL, 0);
	if (op < 0)
		die("accept");
	close(tfm);
	return op;
}

/* One message with operation, IV and the length of its associated data. */
static void send_op(int op, uint32_t direction, const void *iv, uint32_t iv_len, uint32_t assoc_len, const void *text,
		    size_t len)
{
	union {
		char bytes[CMSG_SPACE(4) + CMSG_SPACE(4 + 16) + CMSG_SPACE(4)];
		struct cmsghdr align;
	} control;
	struct iovec iov = { (void *)text, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control };
	struct cmsghdr *c;

	memset(&control, 0, sizeof control);
	msg.msg_controllen = CMSG_SPACE(4) + CMSG_SPACE(4 + iv_len) + CMSG_SPACE(4);
	c = CMSG_FIRSTHDR(&msg);
	c->cmsg_level = SOL_ALG, c->cmsg_type = ALG_SET_OP, c->cmsg_len = CMSG_LEN(4);
	memcpy(CMSG_DATA(c), &direction, 4);
	c = CMSG_NXTHDR(&msg, c);
	c->cmsg_level = SOL_ALG, c->cmsg_type = ALG_SET_IV, c->cmsg_len = CMSG_LEN(4 + iv_len);
	memcpy(CMSG_DATA(c), &iv_len, 4);
	memcpy(CMSG_DATA(c) + 4, iv, iv_len);
	c = CMSG_NXTHDR(&msg, c);
	c->cmsg_level = SOL_ALG, c->cmsg_type = ALG_SET_AEAD_ASSOCLEN, c->cmsg_len = CMSG_LEN(4);
	memcpy(CMSG_DATA(c), &assoc_len, 4);
	if (sendmsg(op, &msg, 0) != (ssize_t)len)
		die("sendmsg");
}

static size_t unhex(const char *hex, unsigned char *out)
{
	size_t n = 0;
	unsigned byte;

	for (; sscanf(hex, "%2x", &byte) == 1; hex += 2)
		out[n++] = byte;
	return n;
}

static int wrong;

static void check(const char *what, const unsigned char *got, ssize_t len, const char *want)
{
	unsigned char bytes[128];
	size_t n = unhex(want, bytes);
	int ok = len == (ssize_t)n && !memcmp(got, bytes, n);

	printf("%-32s %s\n", what, ok ? "ok" : "WRONG");
	wrong |= !ok;
}

static void known_answers(void)
{
	unsigned char key[32], iv[16], text[128], out[128];
	ssize_t n;
	int op = open_op("hash", "sha256", NULL, 0, 0);

	/* FIPS 180-2, B.1, in two pieces. */
	if (send(op, "a", 1, MSG_MORE) != 1 || send(op, "bc", 2, 0) != 2)
		die("send");
	n = read(op, out, 32);
	check("sha256", out, n, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	close(op);

	/* RFC 4231, test case 2. */
	op = open_op("hash", "hmac(sha256)", "Jefe", 4, 0);
	if (write(op, "what do ya want for nothing?", 28) != 28)
		die("write");
	n = recv(op, out, 32, 0);
	check("hmac(sha256)", out, n, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	close(op);

	/* RFC 3602, case 2, there and back. */
	op = open_op("skcipher", "cbc(aes)", key, unhex("c286696d887c9aa0611bbb3e2025a45a", key), 0);
	unhex("562e17996d093d28ddb3ba695a2e6f58", iv);
	for (n = 0; n < 32; n++)
		text[n] = n;
	send_op(op, ALG_OP_ENCRYPT, iv, 16, 0, text, 32);
	n = read(op, out, 32);
	check("cbc(aes)", out, n, "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1");
	send_op(op, ALG_OP_DECRYPT, iv, 16, 0, out, 32);
	n = read(op, out, 32);
	check("cbc(aes), decrypted", out, n, "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
	close(op);

	/* McGrew and Viega, test case 4. */
	op = open_op("aead", "gcm(aes)", key, unhex("feffe9928665731c6d6a8f9467308308", key), 16);
	unhex("cafebabefacedbaddecaf888", iv);
	n = unhex("feedfacedeadbeeffeedfacedeadbeefabaddad2"
		  "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
		  "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39", text);
	send_op(op, ALG_OP_ENCRYPT, iv, 12, 20, text, n);
	n = read(op, out, n + 16);
	check("gcm(aes)", out, n, "feedfacedeadbeeffeedfacedeadbeefabaddad2"
				  "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
				  "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
				  "5bc94fbc3221a5db94fae95ae7121a47");
	out[n - 1] ^= 1;
	send_op(op, ALG_OP_DECRYPT, iv, 12, 20, out, n);
	n = read(op, out, n - 16) < 0 && errno == EBADMSG;
	printf("%-32s %s\n", "gcm(aes), forged tag refused", n ? "ok" : "WRONG");
	wrong |= !n;
	close(op);
}

static void sha256_file(const char *path)
{
	static unsigned char buf[65536];
	unsigned char out[32];
	int op = open_op("hash", "sha256", NULL, 0, 0), i;
	FILE *file = fopen(path, "rb");
	size_t n;

	if (!file)
		die(path);
	while ((n = fread(buf, 1, sizeof buf, file)) > 0)
		if (send(op, buf, n, MSG_MORE) != (ssize_t)n)
			die("send");
	fclose(file);
	if (recv(op, out, 32, 0) != 32)
		die("recv");
	for (i = 0; i < 32; i++)
		printf("%02x", out[i]);
	printf("  %s\n", path);
}

static int slow_pipe[2];

static void noticed(int signal)
{
	(void)signal;
}

static void *slow(void *op)
{
	/* Linux itself takes nothing from a pipe here. */
	ssize_t n = sendfile(*(int *)op, slow_pipe[0], NULL, 16);

	printf("%-32s %s\n", "sendfile that is interrupted", n < 0 && (errno == EINTR || errno == EINVAL) ? "ok" : "WRONG");
	wrong |= n >= 0;
	return NULL;
}

static void known_answers_beside_slow(void)
{
	struct sigaction action = { .sa_handler = noticed };
	int op = open_op("hash", "sha256", NULL, 0, 0);
	pthread_t thread;

	if (pipe(slow_pipe) || sigaction(SIGUSR1, &action, NULL) || pthread_create(&thread, NULL, slow, &op))
		die("a thread");
	/* It is given time to wait; if it has not begun, this test shows less. */
	usleep(100000);
	known_answers();
	pthread_kill(thread, SIGUSR1);
	pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "sha256"))
		sha256_file(argv[2]);
	else if (argc == 2 && !strcmp(argv[1], "slow"))
		known_answers_beside_slow();
	else if (argc == 1)
		known_answers();
	else
		return fprintf(stderr, "usage: afalg [sha256 FILE | slow]\n"), 2;
	return wrong;
}
