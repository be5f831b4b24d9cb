/* A process and its children with AF_ALG sockets: who can read whose keys, and whose operations go on.
 * cc -O2 -o afalg_fork afalg_fork.c
 *
 *   afalg_fork shared           without a change of credentials parent and child use one operation, as in the kernel
 *   afalg_fork streams          hashes in pieces, keys, answers and waiting calls of parent and child
 *   afalg_fork apart            a child looks for keys of sockets that its parent opened later, and for addresses in the
 *                               memory that they share; what it writes there harms no other socket
 *   afalg_fork scan HOW         a child changes its credentials and looks for its parent's keys in all of its memory
 *   afalg_fork scribble HOW     a child changes its credentials and writes over all memory that it shares
 *   afalg_fork parent HOW       a parent changes its credentials; the child scribbles
 *   afalg_fork continue         threads and sockets of a process that changes its credentials go on
 *   afalg_fork killed SEED N    N children are killed at any moment while they use sockets of their parent
 *
 * HOW: setuid, setresuid, setgroups, capset, syscall (setresuid by number).
 * Prints "all right"; exit status 0 all right, 1 a wrong answer, 2 AF_ALG or the change could not be used.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/if_alg.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SOL_ALG
#define SOL_ALG 279
#endif

/* Keys lie in this program's own memory under a mask only, or it would find them there. */
#define MASK 0xa5

static void die(const char *what)
{
	fprintf(stderr, "afalg_fork: %s: %s\n", what, strerror(errno));
	_exit(2);
}

static void wrong(const char *what)
{
	fprintf(stderr, "afalg_fork: wrong: %s\n", what);
	_exit(1);
}

/* A key under the mask: pseudorandom bytes, the same in every run. */
static void masked_key(unsigned char key[16], unsigned number)
{
	uint32_t x = 2463534242u + number * 7919;

	for (int i = 0; i < 64; i++) {
		x ^= x << 13, x ^= x >> 17, x ^= x << 5;
		key[i % 16] = (unsigned char)(x >> 8);
	}
}

static int open_tfm(const char *type, const char *name, unsigned number)
{
	struct sockaddr_alg addr = { .salg_family = AF_ALG };
	int tfm = socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	unsigned char key[16];

	if (tfm < 0)
		die("socket");
	strcpy((char *)addr.salg_type, type);
	strcpy((char *)addr.salg_name, name);
	if (bind(tfm, (struct sockaddr *)&addr, sizeof addr))
		die("bind");
	masked_key(key, number);
	for (int i = 0; i < 16; i++)
		key[i] ^= MASK;
	if (setsockopt(tfm, SOL_ALG, ALG_SET_KEY, key, sizeof key))
		die("ALG_SET_KEY");
	explicit_bzero(key, sizeof key);
	return tfm;
}

static int accepted(int tfm)
{
	int op = accept4(tfm, NULL, NULL, SOCK_CLOEXEC);

	if (op < 0)
		die("accept");
	return op;
}

static int cipher(unsigned number)
{
	return open_tfm("skcipher", "cbc(aes)", number);
}

static int try_send(int op, const void *text, size_t len, int flags)
{
	char control[CMSG_SPACE(4) + CMSG_SPACE(4 + 16)] __attribute__((aligned(8))) = { 0 };
	struct iovec iov = { (void *)text, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	uint32_t encrypt = ALG_OP_ENCRYPT, iv_len = 16;

	c->cmsg_level = SOL_ALG, c->cmsg_type = ALG_SET_OP, c->cmsg_len = CMSG_LEN(4);
	memcpy(CMSG_DATA(c), &encrypt, 4);
	c = CMSG_NXTHDR(&msg, c);
	c->cmsg_level = SOL_ALG, c->cmsg_type = ALG_SET_IV, c->cmsg_len = CMSG_LEN(4 + 16);
	memcpy(CMSG_DATA(c), &iv_len, 4);
	return sendmsg(op, &msg, flags) == (ssize_t)len ? 0 : -1;
}

/* Encrypts `len` bytes of zeros. */
static void encrypt(int op, unsigned char *out, size_t len)
{
	static const unsigned char zeros[65536];

	if (try_send(op, zeros, len, 0))
		die("sendmsg");
	if (read(op, out, len) != (ssize_t)len)
		die("read");
}

static void check(int op, const unsigned char expected[16], const char *what)
{
	unsigned char got[16];

	encrypt(op, got, 16);
	if (memcmp(got, expected, 16))
		wrong(what);
}

/* Waits for the other side, or tells it. */
static void await(int fd)
{
	char c;

	if (read(fd, &c, 1) != 1)
		_exit(3);
}

static void tell(int fd)
{
	if (write(fd, "x", 1) != 1)
		die("write");
}

/* The registers after the change. The dynamic linker saves them to the stack, too, when it binds the next function. */
static unsigned char registers[1 << 14] __attribute__((aligned(64)));

static inline __attribute__((always_inline)) void save_registers(void)
{
#ifdef __x86_64__
	__asm__ volatile("xsave %0" : "+m"(registers) : "a"(-1), "d"(-1));
#endif
}

static void drop(const char *how)
{
	uid_t nobody = 65534;

	if (!strcmp(how, "setuid")) {
		if (setgid(nobody) || setuid(nobody))
			die(how);
	} else if (!strcmp(how, "setresuid")) {
		if (setresgid(nobody, nobody, nobody) || setresuid(nobody, nobody, nobody))
			die(how);
	} else if (!strcmp(how, "setgroups")) {
		if (setgroups(1, &nobody))
			die(how);
	} else if (!strcmp(how, "capset")) {
		struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
		struct __user_cap_data_struct none[2] = { 0 };
		extern int capset(cap_user_header_t, const cap_user_data_t);

		if (capset(&head, none))
			die(how);
	} else if (!strcmp(how, "syscall")) {
		if (syscall(SYS_setresuid, nobody, nobody, nobody))
			die(how);
	} else {
		errno = EINVAL;
		die(how);
	}
	save_registers();
}

/* --- AES-128's key schedule: what a driver keeps of a key. --- */

static unsigned char sbox(unsigned char x)
{
	unsigned char inverse = 0, s;

	for (unsigned y = 1; x && y < 256 && !inverse; y++) {
		unsigned a = x, b = y, product = 0;

		for (; b; b >>= 1, a = a << 1 ^ (a & 0x80 ? 0x11b : 0))
			product ^= b & 1 ? a : 0;
		if (product == 1)
			inverse = (unsigned char)y;
	}
	s = inverse;
	for (int i = 1; i < 5; i++)
		s ^= (unsigned char)(inverse << i | inverse >> (8 - i));
	return s ^ 0x63;
}

/* The eleven round keys, under the mask. */
static void masked_schedule(unsigned number, unsigned char keys[11][16])
{
	unsigned char *w = keys[0], rcon = 1;

	masked_key(w, number);
	for (int i = 0; i < 16; i++)
		w[i] ^= MASK;
	for (int i = 16; i < 176; i += 4) {
		unsigned char t[4] = { w[i - 4], w[i - 3], w[i - 2], w[i - 1] };

		if (i % 16 == 0) {
			unsigned char first = t[0];

			t[0] = sbox(t[1]) ^ rcon, t[1] = sbox(t[2]), t[2] = sbox(t[3]), t[3] = sbox(first);
			rcon = (unsigned char)(rcon << 1 ^ (rcon & 0x80 ? 0x1b : 0));
		}
		for (int j = 0; j < 4; j++)
			w[i + j] = w[i + j - 16] ^ t[j];
	}
	for (int i = 0; i < 176; i++)
		w[i] ^= MASK;
}

/* Counts the round keys of a key in one range of memory. */
static unsigned find_in(const unsigned char *at, size_t len, unsigned char keys[11][16])
{
	unsigned found = 0;

	for (size_t i = 0; i + 16 <= len; i++)
		for (int k = 0; k < 11; k++) {
			int j = 0;

			while (j < 16 && (at[i + j] ^ MASK) == keys[k][j])
				j++;
			found += j == 16;
		}
	return found;
}

struct range {
	unsigned char *at;
	size_t len;
};

/* The pages that are in memory of all readable mappings, or of the writable ones that are shared. */
static size_t ranges(struct range *out, size_t room, int shared_only)
{
	static unsigned char in_core[1 << 22];
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	size_t n = 0;

	if (!maps)
		die("/proc/self/maps");
	while (fgets(line, sizeof line, maps)) {
		unsigned long from, to;
		char rights[5];

		if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3 || rights[0] != 'r' || strstr(line, "[v"))
			continue;
		if (shared_only && (rights[1] != 'w' || rights[3] != 's'))
			continue;
		for (unsigned long at = from; at < to; at += 4096ul * sizeof in_core) {
			unsigned long len = to - at < 4096ul * sizeof in_core ? to - at : 4096ul * sizeof in_core;

			if (mincore((void *)at, len, in_core))
				continue;
			for (size_t page = 0; page < len / 4096; page++) {
				unsigned char *p = (unsigned char *)at + page * 4096;

				/* Private memory that is swapped out is not there, either; a test machine does not swap. */
				if (!(in_core[page] & 1))
					continue;
				if (n && out[n - 1].at + out[n - 1].len == p)
					out[n - 1].len += 4096;
				else if (n < room)
					out[n++] = (struct range){ p, 4096 };
			}
		}
	}
	fclose(maps);
	return n;
}

static struct range found_ranges[1 << 16];

#define WANTED 4
static unsigned char schedules[WANTED + 1][11][16];

/* Before anything else: what this computation itself leaves on the stack is wiped, and nothing later. */
static void __attribute__((noinline)) prepare(void)
{
	for (unsigned number = 1; number <= WANTED; number++)
		masked_schedule(number, schedules[number]);
}

static void __attribute__((noinline)) wipe_stack(void)
{
	char stack[32768];

	explicit_bzero(stack, sizeof stack);
}

static unsigned find(unsigned number)
{
	unsigned found = 0;
	size_t n = ranges(found_ranges, sizeof found_ranges / sizeof *found_ranges, 0);

	for (size_t i = 0; i < n; i++)
		found += find_in(found_ranges[i].at, found_ranges[i].len, schedules[number]);
	return found;
}

/* Two pipes and a child. */
struct family {
	pid_t child;
	int to_child[2], to_parent[2];
};

static struct family family(void)
{
	struct family f;

	if (pipe(f.to_child) || pipe(f.to_parent))
		die("pipe");
	f.child = fork();
	if (f.child < 0)
		die("fork");
	return f;
}

static void finish(struct family *f)
{
	int status;

	if (waitpid(f->child, &status, 0) != f->child)
		die("waitpid");
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "afalg_fork: the child ended with %x\n", status);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
}

static void shared(void)
{
	unsigned char alone[48], together[48];
	static const unsigned char zeros[48];
	int tfm = cipher(1), op = accepted(tfm);
	struct family f;

	encrypt(op, alone, 48);
	f = family();
	if (!f.child) {
		/* No change: each of these names what is so already. */
		if (setuid(getuid()) || setgid(getgid()) || setresuid(-1, -1, -1))
			die("setuid");
		if (try_send(op, zeros, 16, MSG_MORE))
			die("sendmsg");
		_exit(0);
	}
	finish(&f);
	/* The child has begun the message, and the parent ends it. */
	if (send(op, zeros, 32, 0) != 32 || read(op, together, 48) != 48)
		die("the parent's part");
	if (memcmp(alone, together, 48))
		wrong("parent and child do not share an operation");
	/* What the child opens goes with it, and what it closes stays with us. */
	f = family();
	if (!f.child) {
		close(op), close(tfm);
		check(accepted(cipher(1)), alone, "the child's own socket");
		_exit(0);
	}
	finish(&f);
	check(op, alone, "the parent's socket after the child has closed it");
}

/* A key that a child sets for an operation whose transform the parent then closes, before another child is made or the program changed. */
static void late_key(void)
{
	unsigned char expected[16], key[16];

	encrypt(accepted(cipher(2)), expected, 16);
	for (int changes = 0; changes < 2; changes++) {
		struct sockaddr_alg addr = { .salg_family = AF_ALG, .salg_type = "skcipher", .salg_name = "cbc(aes)" };
		int tfm = socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), op;
		struct family f;

		if (tfm < 0 || bind(tfm, (struct sockaddr *)&addr, sizeof addr))
			die("bind");
		op = accepted(tfm);
		f = family();
		if (!f.child) {
			masked_key(key, 2);
			for (int i = 0; i < 16; i++)
				key[i] ^= MASK;
			if (setsockopt(tfm, SOL_ALG, ALG_SET_KEY, key, sizeof key))
				die("ALG_SET_KEY");
			_exit(0);
		}
		finish(&f);
		close(tfm);
		if (changes) {
			drop("capset");
		} else {
			f = family();
			if (!f.child) {
				check(op, expected, "the key of another child");
				_exit(0);
			}
			finish(&f);
		}
		check(op, expected, "a child's key after the transform is closed");
		close(op);
	}
}

static void scan(const char *how)
{
	unsigned char first[16];
	int kept = cipher(1), kept_op = accepted(kept);
	int closed = cipher(2), closed_op = accepted(closed);
	struct family f;
	unsigned n;

	encrypt(closed_op, first, 16);
	encrypt(kept_op, first, 16);
	f = family();
	if (!f.child) {
		await(f.to_child[0]);
		close(closed), close(closed_op);
		drop(how);
		tell(f.to_parent[1]);
		await(f.to_child[0]);
		/* The search does find keys: that of a socket which we have. */
		if (!find(1))
			wrong("the search finds nothing");
		if ((n = find(2))) {
			fprintf(stderr, "%u round keys of a closed socket\n", n);
			wrong("the key of a socket that was closed");
		}
		if ((n = find(3))) {
			fprintf(stderr, "%u round keys of a later socket\n", n);
			wrong("the key of a socket that the parent opened afterwards");
		}
		if ((n = find(4))) {
			fprintf(stderr, "%u round keys of a socket after the change\n", n);
			wrong("the key of a socket that the parent opened after the change");
		}
		check(kept_op, first, "a socket that the child has");
		_exit(0);
	}
	{
		int later = cipher(3), later_op = accepted(later), last;

		encrypt(later_op, first, 16);
		tell(f.to_child[1]);
		await(f.to_parent[0]);
		last = accepted(cipher(4));
		encrypt(last, first, 16);
		tell(f.to_child[1]);
		finish(&f);
	}
}

/* Writes over all memory that is shared and writable; of the addresses that it had before, those that are still there. */
static void scribble(size_t n)
{
	size_t more = ranges(found_ranges + n, sizeof found_ranges / sizeof *found_ranges - n, 1);

	for (size_t i = n; i < n + more; i++)
		memset(found_ranges[i].at, 0xee, found_ranges[i].len);
	for (size_t i = 0; i < n; i++)
		for (size_t at = 0; at < found_ranges[i].len; at += 4096) {
			unsigned char in_core;

			if (!mincore(found_ranges[i].at + at, 4096, &in_core))
				memset(found_ranges[i].at + at, 0xee, 4096);
		}
	if (!n)
		wrong("nothing to scribble on");
}

static void try_to_scribble(const char *how)
{
	unsigned char mine[16], other[16], third[16];
	int shared = cipher(1), shared_op = accepted(shared), more = cipher(2), op = accepted(more);
	struct family f;

	encrypt(shared_op, mine, 16);
	encrypt(op, other, 16);
	f = family();
	if (!f.child) {
		size_t n = ranges(found_ranges, sizeof found_ranges / sizeof *found_ranges, 1);

		drop(how);
		if (ranges(found_ranges + n, sizeof found_ranges / sizeof *found_ranges - n, 1))
			wrong("memory that is still shared");
		scribble(n);
		/* Nothing of ours works any more: not even exit may. */
		syscall(SYS_exit_group, 0);
	}
	encrypt(accepted(cipher(3)), third, 16);
	finish(&f);
	for (int i = 0; i < 100; i++) {
		int again = cipher(3), again_op = accepted(again);

		check(shared_op, mine, "a socket that was shared");
		check(op, other, "another");
		check(again_op, third, "a new socket");
		close(again), close(again_op);
	}
}

static void parent(const char *how)
{
	unsigned char expected[16], more[16];
	int tfm = cipher(1), op = accepted(tfm);
	struct family f;

	encrypt(op, expected, 16);
	f = family();
	if (!f.child) {
		size_t n = ranges(found_ranges, sizeof found_ranges / sizeof *found_ranges, 1);

		tell(f.to_parent[1]);
		await(f.to_child[0]);
		/* This child keeps its rights, and its sockets. */
		check(op, expected, "the child's socket");
		scribble(n);
		syscall(SYS_exit_group, 0);
	}
	await(f.to_parent[0]);
	drop(how);
	encrypt(accepted(cipher(2)), more, 16);
	tell(f.to_child[1]);
	finish(&f);
	check(op, expected, "the parent's socket");
	check(accepted(tfm), expected, "a new operation");
	check(accepted(cipher(2)), more, "a new socket");
}

/* A hash of "abc" that begins before the fork and goes on in both, and ends in either. */
static void streams(void)
{
	static const unsigned char sha1_abc[20] = { 0xa9, 0x99, 0x3e, 0x36, 0x47, 0x06, 0x81, 0x6a, 0xba, 0x3e,
		0x25, 0x71, 0x78, 0x50, 0xc2, 0x6c, 0x9c, 0xd0, 0xd8, 0x9d };
	struct sockaddr_alg addr = { .salg_family = AF_ALG, .salg_type = "hash", .salg_name = "sha1" };
	struct sockaddr_alg late = { .salg_family = AF_ALG, .salg_type = "skcipher", .salg_name = "cbc(aes)" };
	int tfm = socket(AF_ALG, SOCK_SEQPACKET, 0), op, other, unbound = socket(AF_ALG, SOCK_SEQPACKET, 0);
	unsigned char got[65536], expected[16], key[16];
	static unsigned char megabytes[4 << 20];
	struct pollfd p = { .events = POLLIN };
	struct family f;

	if (tfm < 0 || bind(tfm, (struct sockaddr *)&addr, sizeof addr))
		die("sha1");
	op = accepted(tfm);
	other = accepted(tfm);
	check(accepted(cipher(1)), (encrypt(accepted(cipher(1)), expected, 16), expected), "an own socket");
	for (int round = 0; round < 3; round++) {
		if (send(op, "a", 1, MSG_MORE) != 1)
			die("send");
		f = family();
		if (!f.child) {
			if (send(op, "b", 1, MSG_MORE) != 1)
				die("the child's piece");
			tell(f.to_parent[1]);
			await(f.to_child[0]);
			/* The parent has ended the message and taken its digest: the next one begins. */
			if (send(op, "abc", 3, 0) != 3)
				die("the child's message");
			_exit(0);
		}
		await(f.to_parent[0]);
		if (send(op, "c", 1, 0) != 1 || read(op, got, 20) != 20 || memcmp(got, sha1_abc, 20))
			wrong("a message of two processes");
		tell(f.to_child[1]);
		finish(&f);
		if (read(op, got, 20) != 20 || memcmp(got, sha1_abc, 20))
			wrong("a message of the child's");
	}
	/* A child hashes more than is kept for others; the parent then begins anew. */
	f = family();
	if (!f.child) {
		for (int i = 0; i < 4; i++)
			if (send(other, megabytes, sizeof megabytes, MSG_MORE) != sizeof megabytes)
				die("a long message");
		if (read(other, got, 20) != 20)
			die("a long message's digest");
		_exit(0);
	}
	finish(&f);
	if (send(other, "abc", 3, 0) != 3 || read(other, got, 20) != 20 || memcmp(got, sha1_abc, 20))
		wrong("a message after a long one of the child's");
	/* A child binds and keys a socket of before the fork, and encrypts with it what its parent receives. */
	f = family();
	if (!f.child) {
		if (bind(unbound, (struct sockaddr *)&late, sizeof late))
			die("bind in a child");
		masked_key(key, 1);
		for (int i = 0; i < 16; i++)
			key[i] ^= MASK;
		if (setsockopt(unbound, SOL_ALG, ALG_SET_KEY, key, sizeof key))
			die("ALG_SET_KEY in a child");
		_exit(0);
	}
	finish(&f);
	op = accepted(unbound);
	check(op, expected, "a key that the child has set");
	/* A parent that waits for what its child sends, in poll, and in recv. */
	p.fd = op;
	if (try_send(op, expected, 16, MSG_MORE) || read(op, got, 16) != 16)
		die("the beginning of a message");
	for (int round = 0; round < 2; round++) {
		if (poll(&p, 1, 0) != 0)
			wrong("nothing is there to be received");
		f = family();
		if (!f.child) {
			usleep(50000);
			if (send(op, expected, 16, MSG_MORE) != 16)
				die("the child's part");
			_exit(0);
		}
		if (!round && poll(&p, 1, 10000) != 1)
			wrong("poll does not see what the child has sent");
		if (recv(op, got, 16, round ? 0 : MSG_DONTWAIT) != 16)
			wrong("a receive that waits for the child");
		finish(&f);
	}
	/* An operation with a key, which only the child still has, keeps the key. */
	f = family();
	if (!f.child) {
		tell(f.to_parent[1]);
		await(f.to_child[0]);
		_exit(0);
	}
	close(op);
	masked_key(key, 2);
	await(f.to_parent[0]);
	if (!setsockopt(unbound, SOL_ALG, ALG_SET_KEY, key, sizeof key) || errno != EBUSY)
		wrong("a key is changed under the child's operation");
	tell(f.to_child[1]);
	finish(&f);
	if (setsockopt(unbound, SOL_ALG, ALG_SET_KEY, key, sizeof key))
		wrong("a key cannot be changed after the child's end");
}

/* Whether a word is an address of memory that this process has mapped. */
static int is_mapped(uintptr_t word)
{
	unsigned char in_core;

	return word >= 0x10000 && word < 0x7fffffffffff && !mincore((void *)(word & ~4095ul), 4096, &in_core);
}

static void apart(void)
{
	unsigned char first[16], second[16], third[16];
	int tfm = cipher(1), op = accepted(tfm), hash_tfm, hash;
	struct sockaddr_alg addr = { .salg_family = AF_ALG, .salg_type = "hash", .salg_name = "sha256" };
	struct family f;

	encrypt(op, first, 16);
	if ((hash_tfm = socket(AF_ALG, SOCK_SEQPACKET, 0)) < 0 || bind(hash_tfm, (struct sockaddr *)&addr, sizeof addr))
		die("sha256");
	hash = accepted(hash_tfm);
	f = family();
	if (!f.child) {
		size_t n;
		unsigned addresses = 0;

		check(op, first, "the child's socket");
		if (send(hash, "abc", 3, MSG_MORE) != 3 || try_send(op, first, 16, MSG_MORE))
			die("send");
		tell(f.to_parent[1]);
		await(f.to_child[0]);
		if (find(2))
			wrong("the key of a socket that the parent opened after the fork");
		n = ranges(found_ranges, sizeof found_ranges / sizeof *found_ranges, 1);
		if (!n)
			wrong("nothing is shared");
		for (size_t i = 0; i < n; i++)
			for (size_t at = 0; at < found_ranges[i].len; at += 8)
				addresses += is_mapped(*(uintptr_t *)(found_ranges[i].at + at));
		if (addresses) {
			fprintf(stderr, "%u words\n", addresses);
			wrong("addresses in memory that is shared");
		}
		scribble(n);
		syscall(SYS_exit_group, 0);
	}
	await(f.to_parent[0]);
	{
		int later = accepted(cipher(2));

		encrypt(later, second, 16);
		tell(f.to_child[1]);
		finish(&f);
		for (int i = 0; i < 100; i++) {
			check(later, second, "a socket of after the fork");
			encrypt(accepted(cipher(3)), third, 16);
			if (i)
				continue;
			/* What was shared may give wrong answers and errors; it must not hang or crash. */
			send(hash, "abc", 3, MSG_DONTWAIT);
			recv(hash, third, 16, MSG_DONTWAIT);
			try_send(op, first, 16, MSG_DONTWAIT);
			recv(op, third, 16, MSG_DONTWAIT);
			close(accept(tfm, NULL, NULL));
		}
	}
}

static int waiting;

static void *receive(void *out)
{
	return (void *)(intptr_t)read(waiting, out, 16);
}

static void *use(void *stop)
{
	unsigned char first[16];
	int tfm = cipher(7), op = accepted(tfm);

	encrypt(op, first, 16);
	while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
		int again = accepted(tfm);

		check(op, first, "a thread's socket");
		check(again, first, "a thread's new operation");
		close(again);
	}
	return NULL;
}

static void go_on(void)
{
	static const unsigned char zeros[16];
	unsigned char expected[16], got[16];
	int tfm = cipher(1), op = accepted(tfm), begun = accepted(tfm), stop = 0;
	struct pollfd p = { .fd = op, .events = POLLIN | POLLOUT };
	pthread_t receiver, users[3];
	struct family f, g;
	void *n;

	encrypt(op, expected, 16);
	if (poll(&p, 1, 0) != 1)
		wrong("poll before");
	f = family();
	if (!f.child) {
		/* Uses the same sockets until the parent has parted. */
		await(f.to_child[0]);
		check(op, expected, "the child's socket");
		/* The parent's receiver and message are copies now: these are still without a message. */
		if (recv(begun, got, 16, MSG_DONTWAIT) != -1 || errno != EAGAIN)
			wrong("a message of the parent's");
		_exit(0);
	}
	waiting = accepted(tfm);
	pthread_create(&receiver, NULL, receive, got);
	for (int i = 0; i < 3; i++)
		pthread_create(&users[i], NULL, use, &stop);
	usleep(100000);
	drop("capset");
	/* The receiver slept through the change. */
	if (try_send(waiting, zeros, 16, 0))
		die("sendmsg");
	pthread_join(receiver, &n);
	if ((intptr_t)n != 16 || memcmp(got, expected, 16))
		wrong("a receive that waited");
	/* A key can be changed when the operations are gone that we have: others have copies. */
	if (try_send(begun, zeros, 16, 0))
		die("sendmsg");
	tell(f.to_child[1]);
	finish(&f);
	if (read(begun, got, 16) != 16 || memcmp(got, expected, 16))
		wrong("a message that had begun");
	if (poll(&p, 1, 0) != 1)
		wrong("poll after");
	close(op), close(begun), close(waiting);
	masked_key(got, 9);
	if (setsockopt(tfm, SOL_ALG, ALG_SET_KEY, got, 16))
		die("a new key");
	/* Children of afterwards share again. */
	op = accepted(tfm);
	g = family();
	if (!g.child) {
		if (try_send(op, zeros, 16, MSG_MORE))
			die("sendmsg");
		_exit(0);
	}
	finish(&g);
	if (send(op, zeros, 0, 0) != 0 || read(op, got, 16) != 16)
		die("a message of a later child's");
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++)
		pthread_join(users[i], NULL);
}

/* Whatever a child did last, one operation of ours comes out right after what is left of its message. */
static void settle(int op, const unsigned char expected[16])
{
	unsigned char rest[65536];

	/* Ends a message that it may have begun, and takes what is there. */
	send(op, rest, 0, MSG_DONTWAIT);
	while (recv(op, rest, sizeof rest, MSG_DONTWAIT) > 0)
		;
	check(op, expected, "an operation that a killed process had used");
}

static void killed(unsigned seed, int n)
{
	unsigned char expected[16], hashed[20], got[65536];
	int tfm = cipher(1), op = accepted(tfm), own = accepted(cipher(1));
	int hmac = open_tfm("hash", "hmac(sha1)", 5), hash = accepted(hmac);
	static const unsigned char text[30000];
	uint32_t x = seed * 2654435761u + 1;

	encrypt(op, expected, 16);
	if (send(hash, "abc", 3, 0) != 3 || read(hash, hashed, 20) != 20)
		die("hmac(sha1)");
	for (int i = 0; i < n; i++) {
		pid_t child = fork();

		if (child < 0)
			die("fork");
		if (!child)
			for (;;) {
				int mine = cipher(6), mine_op = accepted(mine), shared = accepted(tfm), h = accepted(hmac);

				encrypt(mine_op, got, 16 << (i % 12));
				encrypt(shared, got, 16);
				try_send(op, text, 1 << (i % 14), MSG_DONTWAIT | (i & 16 ? MSG_MORE : 0));
				recv(op, got, sizeof got, MSG_DONTWAIT);
				send(hash, text, 1 << (i % 14), i & 1 ? MSG_MORE : 0);
				recv(hash, got, 20, 0);
				close(mine), close(mine_op), close(shared), close(h);
			}
		x ^= x << 13, x ^= x >> 17, x ^= x << 5;
		/* Meanwhile the parent takes and gives memory of the same sockets. */
		for (unsigned k = 0; k < x % 24; k++) {
			int again = accepted(tfm);

			check(again, expected, "a new operation beside the child");
			close(again);
			check(own, expected, "an own socket beside the child");
		}
		usleep(x >> 20);
		kill(child, SIGKILL);
		/* Not waited for yet: the child is a zombie while we go on. */
		settle(op, expected);
		send(hash, "", 0, 0);
		recv(hash, got, 20, MSG_DONTWAIT);
		if (send(hash, "abc", 3, 0) != 3 || read(hash, got, 20) != 20 || memcmp(got, hashed, 20))
			wrong("a hash that a killed process had used");
		check(own, expected, "an own socket");
		{
			int again = cipher(1), again_op = accepted(again), more = accepted(tfm);

			check(again_op, expected, "a new socket");
			check(more, expected, "a new operation");
			close(again), close(again_op), close(more);
		}
		{
			int status;

			if (waitpid(child, &status, 0) != child)
				die("waitpid");
			if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
				wrong("a child ended by itself");
		}
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "", *arg = argc > 2 ? argv[2] : "setresuid";

	/* A hang is an answer, too. */
	alarm(50);
	prepare();
	wipe_stack();
	if (!strcmp(what, "shared"))
		shared();
	else if (!strcmp(what, "late-key"))
		late_key();
	else if (!strcmp(what, "streams"))
		streams();
	else if (!strcmp(what, "apart"))
		apart();
	else if (!strcmp(what, "scan"))
		scan(arg);
	else if (!strcmp(what, "scribble"))
		try_to_scribble(arg);
	else if (!strcmp(what, "parent"))
		parent(arg);
	else if (!strcmp(what, "continue"))
		go_on();
	else if (!strcmp(what, "killed") && argc > 3)
		killed((unsigned)atoi(arg), atoi(argv[3]));
	else
		die("usage: afalg_fork shared|late-key|streams|apart|scan HOW|scribble HOW|parent HOW|continue|killed SEED N");
	puts("all right");
	return 0;
}
