/* AF_ALG by commands from standard input: sets keys that it wipes from its own memory, and computes with them. It knows nothing
 * of keepers.
 * cc -O2 [-static] -o afalg_keys afalg_keys.c
 *
 *   key SLOT TYPE NAME LEN         sets a key of LEN bytes, which follow the line
 *   text SLOT TYPE NAME KEY        sets a key that is a word of this line
 *   serial SLOT TYPE NAME SERIAL   sets a key of the kernel's keyrings
 *   logon SLOT TYPE NAME LEN       adds a logon key of LEN bytes, which follow the line, and sets it by its serial number
 *   user DESCRIPTION               adds a user key to the process's keyring; prints its serial number
 *   tag SLOT LEN                   the length of an AEAD's tags
 *   encrypt SLOT IV ASSOC LEN      encrypts a text; prints it. IV: the length of its IV
 *   decrypt SLOT IV ASSOC LEN      decrypts what was encrypted last
 *   chain SLOT IV LEN PIECE        encrypts a text in pieces, each of which goes on where the last one has ended
 *   mac SLOT LEN PIECE             authenticates a text that is sent in pieces; prints the tag
 *   fork SLOT LEN                  authenticates two texts with a common beginning, by two operations
 *   move SLOT LEN                  authenticates a text, by a second operation that goes on where the first one is closed
 *   result SLOT                    receives the result of a hash, whatever has been sent
 *   child COMMAND                  a child runs the command
 *   thin COMMAND                   a thread with the least stack that there is runs the command
 *   close                          closes all descriptors but those of the slots and standard ones
 *   setuid UID                     becomes another user
 *   clear                          clears the environment
 *   splice SLOT LEN                splices zeros from a pipe into a hash
 *   wait MS
 *
 * Each command but `wait` prints a line: hexadecimal bytes (of long texts a sum), "ok", or the name of an error. A SLOT is a
 * number below 8. Exit status: 0 at the end of the input, 2 for a command that it does not know.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/if_alg.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SOL_ALG
#define SOL_ALG 279
#endif
#ifndef ALG_SET_KEY_BY_KEY_SERIAL
#define ALG_SET_KEY_BY_KEY_SERIAL 7
#endif

#define SLOTS 8
#define MOST (1 << 20)

static struct {
	int tfm, op;
	unsigned tag_len;
} slots[SLOTS];
static unsigned char secret[1 << 16], text[MOST], out[MOST + 64];
static size_t out_len;

static void say(const char *words)
{
	if (write(1, words, strlen(words)) < 0 || write(1, "\n", 1) < 0)
		exit(2);
}

static void fail(void)
{
	const char *name = strerrorname_np(errno);

	say(name ? name : "?");
}

static void show(const unsigned char *bytes, size_t len)
{
	static char line[2 * 64 + 40];
	uint64_t sum = 0xcbf29ce484222325;

	if (len <= 64) {
		for (size_t i = 0; i < len; i++)
			sprintf(line + 2 * i, "%02x", bytes[i]);
		line[2 * len] = 0;
	} else {
		for (size_t i = 0; i < len; i++)
			sum = (sum ^ bytes[i]) * 0x100000001b3;
		sprintf(line, "%zu bytes, sum %016llx", len, (unsigned long long)sum);
	}
	say(line);
}

static int input(void *to, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = read(0, (char *)to + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		done += n;
	}
	return 0;
}

static int read_line(char *line, size_t room)
{
	for (size_t len = 0; len + 1 < room; len++) {
		if (input(line + len, 1))
			return -1;
		if (line[len] == '\n') {
			line[len] = 0;
			return 0;
		}
	}
	return -1;
}

/* Sets a key of the slot, whose sockets of before are closed, and accepts an operation. */
static void set(int slot, const char *type, const char *name, int option, const void *key, size_t len)
{
	struct sockaddr_alg addr = { .salg_family = AF_ALG };
	int failure;

	if (slots[slot].op > 0)
		close(slots[slot].op);
	if (slots[slot].tfm > 0)
		close(slots[slot].tfm);
	slots[slot].op = slots[slot].tfm = -1;
	strncpy((char *)addr.salg_type, type, sizeof addr.salg_type - 1);
	strncpy((char *)addr.salg_name, name, sizeof addr.salg_name - 1);
	slots[slot].tfm = socket(AF_ALG, SOCK_SEQPACKET, 0);
	if (slots[slot].tfm < 0 || bind(slots[slot].tfm, (struct sockaddr *)&addr, sizeof addr)) {
		fail();
		return;
	}
	failure = setsockopt(slots[slot].tfm, SOL_ALG, option, key, len) ? errno : 0;
	explicit_bzero(secret, sizeof secret);
	errno = failure;
	if (failure) {
		fail();
		return;
	}
	slots[slot].tag_len = strcmp(type, "aead") ? 0 : 16;
	if (slots[slot].tag_len && setsockopt(slots[slot].tfm, SOL_ALG, ALG_SET_AEAD_AUTHSIZE, NULL, 16)) {
		fail();
		return;
	}
	slots[slot].op = accept(slots[slot].tfm, NULL, 0);
	if (slots[slot].op < 0)
		fail();
	else
		say("ok");
}

static ssize_t send_text(int op, unsigned direction, size_t iv_len, unsigned assoc, const void *from, size_t len, int flags)
{
	union {
		char bytes[256];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { (void *)from, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control };
	struct cmsghdr *c = &control.align;
	struct af_alg_iv *iv;

	msg.msg_controllen = sizeof control;
	c->cmsg_level = SOL_ALG;
	c->cmsg_type = ALG_SET_OP;
	c->cmsg_len = CMSG_LEN(4);
	memcpy(CMSG_DATA(c), &direction, 4);
	if (iv_len) {
		c = CMSG_NXTHDR(&msg, c);
		c->cmsg_level = SOL_ALG;
		c->cmsg_type = ALG_SET_IV;
		c->cmsg_len = CMSG_LEN(sizeof *iv + iv_len);
		iv = (void *)CMSG_DATA(c);
		iv->ivlen = iv_len;
		memset(iv->iv, 7, iv_len);
	}
	if (assoc) {
		c = CMSG_NXTHDR(&msg, c);
		c->cmsg_level = SOL_ALG;
		c->cmsg_type = ALG_SET_AEAD_ASSOCLEN;
		c->cmsg_len = CMSG_LEN(4);
		memcpy(CMSG_DATA(c), &assoc, 4);
	}
	msg.msg_controllen = (char *)c + CMSG_ALIGN(c->cmsg_len) - control.bytes;
	return sendmsg(op, &msg, flags);
}

static int receive(int op, size_t len)
{
	ssize_t n = 0;

	out_len = 0;
	while (out_len < len && (n = read(op, out + out_len, len - out_len)) > 0)
		out_len += n;
	return n < 0 ? -1 : 0;
}

static void crypt_text(int slot, unsigned direction, size_t iv_len, unsigned assoc, size_t len)
{
	int op = slots[slot].op;
	size_t sent = assoc + len, back = sent;

	if (direction == ALG_OP_ENCRYPT)
		for (size_t i = 0; i < sent; i++)
			text[i] = i * 7;
	else
		memcpy(text, out, sent += slots[slot].tag_len);
	if (direction == ALG_OP_ENCRYPT)
		back += slots[slot].tag_len;
	if (send_text(op, direction, iv_len, assoc, text, sent, 0) != (ssize_t)sent || receive(op, back))
		fail();
	else
		show(out, out_len);
}

static void chain(int slot, size_t iv_len, size_t len, size_t piece)
{
	int op = slots[slot].op;
	static unsigned char all[MOST];

	for (size_t i = 0; i < len; i++)
		text[i] = i * 5;
	for (size_t at = 0; at < len; at += piece) {
		size_t n = len - at < piece ? len - at : piece;

		if (send_text(op, ALG_OP_ENCRYPT, at ? 0 : iv_len, 0, text + at, n, at + n < len ? MSG_MORE : 0) < 0 ||
		    receive(op, n)) {
			fail();
			return;
		}
		memcpy(all + at, out, n);
	}
	show(all, len);
}

static void mac(int slot, size_t len, size_t piece)
{
	int op = slots[slot].op;

	for (size_t i = 0; i < len; i++)
		text[i] = i * 3;
	for (size_t at = 0; at < len || !len; at += piece) {
		size_t n = len - at < piece ? len - at : piece;

		if (send(op, text + at, n, at + n < len ? MSG_MORE : 0) != (ssize_t)n) {
			fail();
			return;
		}
		if (!len)
			break;
	}
	ssize_t n = read(op, out, 64);
	if (n < 0)
		fail();
	else
		show(out, n);
}

/* A child splices zeros from a pipe into a hash, and prints what became of it. This process binds another socket meanwhile, and
 * prints its own line. That comes first where the child's call waits and this one need not. */
static void splice_zeros(int slot, size_t len)
{
	struct sockaddr_alg addr = { .salg_family = AF_ALG, .salg_type = "hash", .salg_name = "sha256" };
	int ends[2], other;

	if (pipe(ends)) {
		fail();
		return;
	}
	if (!fork()) {
		memset(text, 0, len);
		if (write(ends[1], text, len) != (ssize_t)len || close(ends[1]) ||
		    splice(ends[0], NULL, slots[slot].op, NULL, len, 0) < 0)
			fail();
		else
			say("spliced");
		_exit(0);
	}
	usleep(500 * 1000);
	other = socket(AF_ALG, SOCK_SEQPACKET, 0);
	if (other < 0 || bind(other, (struct sockaddr *)&addr, sizeof(addr)))
		fail();
	else
		say("ok");
	close(other);
	close(ends[0]);
	close(ends[1]);
}

static void two_ends(int slot, size_t len)
{
	int op = slots[slot].op, other;
	unsigned char tags[128];
	ssize_t a, b;

	for (size_t i = 0; i < len; i++)
		text[i] = i * 3;
	if (send(op, text, len, MSG_MORE) != (ssize_t)len || (other = accept(op, NULL, 0)) < 0) {
		fail();
		return;
	}
	if (send(op, "one end", 7, 0) != 7 || (a = read(op, tags, 64)) < 0 || send(other, "another", 7, 0) != 7 ||
	    (b = read(other, tags + a, 64)) < 0)
		fail();
	else
		show(tags, a + b);
	close(other);
}

static void move_on(int slot, size_t len)
{
	int op = slots[slot].op, other;
	ssize_t n;

	for (size_t i = 0; i < len; i++)
		text[i] = i * 3;
	if (send(op, text, len / 2, MSG_MORE) != (ssize_t)(len / 2) || (other = accept(op, NULL, 0)) < 0) {
		fail();
		return;
	}
	close(op);
	slots[slot].op = other;
	/* Its memory is used for something else. */
	op = accept(slots[slot].tfm, NULL, 0);
	if (op < 0 || send(op, text, len, MSG_MORE) != (ssize_t)len || send(other, text + len / 2, len - len / 2, 0) < 0 ||
	    (n = read(other, out, 64)) < 0)
		fail();
	else
		show(out, n);
	close(op);
}

static int is_slot(int fd)
{
	for (int i = 0; i < SLOTS; i++)
		if (slots[i].tfm == fd || slots[i].op == fd)
			return 1;
	return 0;
}

static int command(const char *line);

static void *thin(void *line)
{
	return command(line) ? line : NULL;
}

static int command(const char *line)
{
	char type[32], name[128], word[256];
	int slot, serial, iv, ms;
	unsigned assoc;
	size_t len, piece;
	long uid;

	if (sscanf(line, "key %d %31s %127s %zu", &slot, type, name, &len) == 4) {
		if (slot >= SLOTS || len > sizeof secret || input(secret, len))
			return -1;
		set(slot, type, name, ALG_SET_KEY, secret, len);
	} else if (sscanf(line, "text %d %31s %127s %255s", &slot, type, name, word) == 4 && slot < SLOTS) {
		set(slot, type, name, ALG_SET_KEY, word, strlen(word));
	} else if (sscanf(line, "serial %d %31s %127s %d", &slot, type, name, &serial) == 4 && slot < SLOTS) {
		set(slot, type, name, ALG_SET_KEY_BY_KEY_SERIAL, &serial, sizeof serial);
	} else if (sscanf(line, "logon %d %31s %127s %zu", &slot, type, name, &len) == 4) {
		if (slot >= SLOTS || len > sizeof secret || input(secret, len))
			return -1;
		/* -2: the process's keyring. */
		serial = syscall(SYS_add_key, "logon", "sealane-test:logon", secret, len, -2);
		explicit_bzero(secret, sizeof secret);
		if (serial < 0)
			fail();
		else
			set(slot, type, name, ALG_SET_KEY_BY_KEY_SERIAL, &serial, sizeof serial);
	} else if (sscanf(line, "user %255s", word) == 1) {
		serial = syscall(SYS_add_key, "user", word, "-", 1, -2);
		if (serial < 0) {
			fail();
		} else {
			sprintf(word, "%d", serial);
			say(word);
		}
	} else if (sscanf(line, "tag %d %zu", &slot, &len) == 2 && slot < SLOTS) {
		if (setsockopt(slots[slot].tfm, SOL_ALG, ALG_SET_AEAD_AUTHSIZE, NULL, len)) {
			fail();
		} else {
			slots[slot].tag_len = len;
			say("ok");
		}
	} else if (sscanf(line, "encrypt %d %d %u %zu", &slot, &iv, &assoc, &len) == 4 && slot < SLOTS && len <= MOST) {
		crypt_text(slot, ALG_OP_ENCRYPT, iv, assoc, len);
	} else if (sscanf(line, "decrypt %d %d %u %zu", &slot, &iv, &assoc, &len) == 4 && slot < SLOTS && len <= MOST) {
		crypt_text(slot, ALG_OP_DECRYPT, iv, assoc, len);
	} else if (sscanf(line, "chain %d %d %zu %zu", &slot, &iv, &len, &piece) == 4 && slot < SLOTS && len <= MOST) {
		chain(slot, iv, len, piece);
	} else if (sscanf(line, "mac %d %zu %zu", &slot, &len, &piece) == 3 && slot < SLOTS && len <= MOST) {
		mac(slot, len, piece);
	} else if (sscanf(line, "fork %d %zu", &slot, &len) == 2 && slot < SLOTS && len <= MOST) {
		two_ends(slot, len);
	} else if (sscanf(line, "move %d %zu", &slot, &len) == 2 && slot < SLOTS && len <= MOST) {
		move_on(slot, len);
	} else if (sscanf(line, "result %d", &slot) == 1 && slot < SLOTS) {
		ssize_t n = read(slots[slot].op, out, 64);

		if (n < 0)
			fail();
		else
			show(out, n);
	} else if (!strncmp(line, "child ", 6)) {
		pid_t child = fork();
		int status;

		if (!child)
			_exit(command(line + 6) ? 2 : 0);
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
		return status ? -1 : 0;
	} else if (!strncmp(line, "thin ", 5)) {
		pthread_attr_t attr;
		pthread_t thread;
		void *failed;

		pthread_attr_init(&attr);
		if (pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN) || pthread_create(&thread, &attr, thin, (void *)(line + 5)) ||
		    pthread_join(thread, &failed))
			return -1;
		return failed ? -1 : 0;
	} else if (!strcmp(line, "close")) {
		for (int fd = 3; fd < 4096; fd++)
			if (!is_slot(fd))
				close(fd);
		say("ok");
	} else if (sscanf(line, "setuid %ld", &uid) == 1) {
		if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
			fail();
		else
			say("ok");
	} else if (!strcmp(line, "clear")) {
		clearenv();
		say("ok");
	} else if (sscanf(line, "splice %d %zu", &slot, &len) == 2 && slot < SLOTS && len <= 1 << 16) {
		splice_zeros(slot, len);
	} else if (sscanf(line, "wait %d", &ms) == 1) {
		usleep(ms * 1000);
	} else {
		fprintf(stderr, "afalg_keys: %s: no such command\n", line);
		return -1;
	}
	return 0;
}

int main(void)
{
	char line[512];

	while (!read_line(line, sizeof line))
		if (command(line))
			return 2;
	return 0;
}
