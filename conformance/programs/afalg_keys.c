/* AF_ALG by commands from standard input: sets keys that it wipes from its own memory, and computes with them. It knows nothing
 * of keepers.
 * cc -O2 [-static] -o afalg_keys afalg_keys.c
 *
 *   key SLOT TYPE NAME LEN         sets a key of LEN bytes, which follow the line
 *   text SLOT TYPE NAME KEY        sets a key that is a word of this line
 *   serial SLOT TYPE NAME SERIAL   sets a key of the kernel's keyrings
 *   logon SLOT TYPE NAME LEN       adds a logon key of LEN bytes, which follow the line, and sets it by its serial number
 *   user DESCRIPTION               adds a user key to the process's keyring; prints its serial number
 *   rekey SLOT LEN                 closes the slot's operation, sets another key of LEN bytes, which follow the line, on its
 *                                  socket, and accepts an operation
 *   drop SLOT                      closes the slot's operation
 *   accept SLOT                    accepts an operation for the slot
 *   fill TYPE NAME LEN             sets keys of LEN bytes on more and more sockets until that fails, and closes them; prints how
 *                                  many there were, and the error
 *   turns COUNT                    sets so many keys in all ways in which one can come to be and go
 *   tag SLOT LEN                   the length of an AEAD's tags
 *   encrypt SLOT IV ASSOC LEN      encrypts a text; prints it. IV: the length of its IV
 *   decrypt SLOT IV ASSOC LEN      decrypts what was encrypted last
 *   chain SLOT IV LEN PIECE        encrypts a text in pieces, each of which goes on where the last one has ended
 *   mac SLOT LEN PIECE             authenticates a text that is sent in pieces; prints the tag
 *   fork SLOT LEN                  authenticates two texts with a common beginning, by two operations
 *   move SLOT LEN                  authenticates a text, by a second operation that goes on where the first one is closed
 *   result SLOT                    receives the result of a hash, whatever has been sent
 *   child COMMAND; COMMAND         a child runs the commands
 *   thin COMMAND                   a thread with the least stack that there is runs the command
 *   close                          closes all descriptors but those of the slots and standard ones
 *   setuid UID                     becomes another user
 *   clear                          clears the environment
 *   splice SLOT LEN                splices zeros from a pipe into a hash
 *   wait MS
 *   pause                          waits for one more byte of input
 *
 * Each command but `wait` and `pause` prints a line: hexadecimal bytes (of long texts a sum), "ok", or the name of an error. A SLOT is a
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

static int bind_to(int tfm, const char *type, const char *name)
{
	struct sockaddr_alg addr = { .salg_family = AF_ALG };

	strncpy((char *)addr.salg_type, type, sizeof addr.salg_type - 1);
	strncpy((char *)addr.salg_name, name, sizeof addr.salg_name - 1);
	return bind(tfm, (struct sockaddr *)&addr, sizeof addr);
}

static int bound(const char *type, const char *name)
{
	int tfm = socket(AF_ALG, SOCK_SEQPACKET, 0);

	return tfm < 0 || bind_to(tfm, type, name) ? -1 : tfm;
}

static void drop(int slot)
{
	if (slots[slot].op > 0)
		close(slots[slot].op);
	slots[slot].op = -1;
}

static void accept_one(int slot)
{
	slots[slot].op = accept(slots[slot].tfm, NULL, 0);
	if (slots[slot].op < 0)
		fail();
	else
		say("ok");
}

/* Sets a key of the slot, whose sockets of before are closed, and accepts an operation. */
static void set(int slot, const char *type, const char *name, int option, const void *key, size_t len)
{
	int failure;

	drop(slot);
	if (slots[slot].tfm > 0)
		close(slots[slot].tfm);
	slots[slot].tfm = bound(type, name);
	if (slots[slot].tfm < 0) {
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
	accept_one(slot);
}

static void set_again(int slot, size_t len)
{
	int failure;

	drop(slot);
	failure = setsockopt(slots[slot].tfm, SOL_ALG, ALG_SET_KEY, secret, len) ? errno : 0;
	explicit_bzero(secret, sizeof secret);
	errno = failure;
	if (failure)
		fail();
	else
		accept_one(slot);
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

static void fill(const char *type, const char *name, size_t len)
{
	static int filled[1 << 16];
	int count = 0, failure = 0;
	char line[64];

	for (;;) {
		int tfm = bound(type, name);

		if (tfm < 0) {
			failure = errno;
			break;
		}
		filled[count] = tfm;
		memset(secret, count, len);
		if (setsockopt(tfm, SOL_ALG, ALG_SET_KEY, secret, len)) {
			int op, other;

			failure = errno;
			op = accept(tfm, NULL, 0);
			other = bound("hash", "blake2s-256");
			/* Such a socket has no key. An algorithm that has not been used yet is there. */
			if (op < 0 || other < 0 || send(op, text, 16, 0) >= 0 || errno != ENOKEY)
				failure = 0;
			close(other);
			close(op);
			close(tfm);
			break;
		}
		if (++count == sizeof filled / sizeof filled[0])
			break;
	}
	for (int i = 0; i < count; i++)
		close(filled[i]);
	sprintf(line, "%d %s", count, failure ? strerrorname_np(failure) : "?");
	say(line);
}

/* One key that comes to be and goes. */
static int turn(int tfm, int way)
{
	static const char *const hashes[] = { "hmac(sha256)", "cmac(aes)", "blake2b-256" };
	int op = -1, other = -1, own = -1, done = -1;

	memset(secret, way, 32);
	switch (way % 8) {
	case 0: /* another key of a socket that has one */
		return setsockopt(tfm, SOL_ALG, ALG_SET_KEY, secret, 16);
	case 1: /* a refused key takes the one before away */
		return !setsockopt(tfm, SOL_ALG, ALG_SET_KEY, secret, 17) || setsockopt(tfm, SOL_ALG, ALG_SET_KEY, secret, 32);
	case 2: /* another algorithm */
		return setsockopt(tfm, SOL_ALG, ALG_SET_KEY, secret, 16) || bind_to(tfm, "skcipher", "cbc(aes)") ||
		       setsockopt(tfm, SOL_ALG, ALG_SET_KEY, secret, 16) || bind_to(tfm, "skcipher", "ctr(aes)");
	case 3: /* an operation that outlives its transform, with a text under way */
		own = bound("skcipher", "cbc(aes)");
		if (own < 0 || setsockopt(own, SOL_ALG, ALG_SET_KEY, secret, 16) || (op = accept(own, NULL, 0)) < 0)
			break;
		close(own);
		own = -1;
		done = send_text(op, ALG_OP_ENCRYPT, 16, 0, text, 64, MSG_MORE) == 64 ? 0 : -1;
		break;
	case 4: /* two messages that go on from one, one of which is ended */
	case 5: /* the same, and the transform is closed first */
		own = bound("hash", hashes[way / 8 % 3]);
		if (own < 0 || setsockopt(own, SOL_ALG, ALG_SET_KEY, secret, 16) || (op = accept(own, NULL, 0)) < 0 ||
		    send(op, text, 100, MSG_MORE) != 100 || (other = accept(op, NULL, 0)) < 0 ||
		    send(other, text, 100, MSG_MORE) != 100)
			break;
		if (way % 8 == 5) {
			close(own);
			own = -1;
		}
		done = read(other, out, 16) == 16 ? 0 : -1;
		break;
	case 6: /* an AEAD whose text is never received */
		own = bound("aead", "gcm(aes)");
		if (own < 0 || setsockopt(own, SOL_ALG, ALG_SET_KEY, secret, 32) || (op = accept(own, NULL, 0)) < 0)
			break;
		done = send_text(op, ALG_OP_ENCRYPT, 12, 16, text, 80, 0) == 80 ? 0 : -1;
		break;
	case 7: /* an operation that has its key before the transform has another one */
		own = bound("skcipher", "ecb(aes)");
		if (own < 0 || (op = accept(own, NULL, 0)) < 0 || setsockopt(own, SOL_ALG, ALG_SET_KEY, secret, 16) ||
		    setsockopt(own, SOL_ALG, ALG_SET_KEY, secret, 24))
			break;
		done = send_text(op, ALG_OP_ENCRYPT, 0, 0, text, 64, 0) == 64 && read(op, out, 32) == 32 ? 0 : -1;
		break;
	}
	if (own >= 0)
		close(own);
	if (op >= 0)
		close(op);
	if (other >= 0)
		close(other);
	return done;
}

static void turns(int count)
{
	int tfm = bound("skcipher", "ctr(aes)");

	for (int way = 0; way < count; way++)
		if (tfm < 0 || turn(tfm, way)) {
			fprintf(stderr, "afalg_keys: turn %d\n", way);
			fail();
			return;
		}
	close(tfm);
	say("ok");
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
	} else if (sscanf(line, "rekey %d %zu", &slot, &len) == 2 && slot < SLOTS) {
		if (len > sizeof secret || input(secret, len))
			return -1;
		set_again(slot, len);
	} else if (sscanf(line, "drop %d", &slot) == 1 && slot < SLOTS) {
		drop(slot);
		say("ok");
	} else if (sscanf(line, "accept %d", &slot) == 1 && slot < SLOTS) {
		accept_one(slot);
	} else if (sscanf(line, "fill %31s %127s %zu", type, name, &len) == 3 && len <= sizeof secret) {
		fill(type, name, len);
	} else if (sscanf(line, "turns %d", &ms) == 1) {
		turns(ms);
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

		if (!child) {
			char commands[512], *rest = commands, *next;

			snprintf(commands, sizeof commands, "%s", line + 6);
			while ((next = strsep(&rest, ";")))
				if (command(next + strspn(next, " ")))
					_exit(2);
			_exit(0);
		}
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
	} else if (!strcmp(line, "pause")) {
		return input(word, 1);
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
