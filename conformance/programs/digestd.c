/* A small service that hashes through AF_ALG, and knows nothing of Sealane.
 * cc -O1 -o digestd digestd.c
 *
 *   digestd [-d PIDFILE] FILE    answers a connection to port 80 of 127.0.0.1 with FILE's first word and the SHA-256 of "abc",
 *                                or the errno of AF_ALG. SIGHUP: it reads FILE again. SIGTERM: exit status 7.
 *                                -d: in the background.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_alg.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile sig_atomic_t again = 1;

static void hangup(int signal)
{
	(void)signal;
	again = 1;
}

static void terminate(int signal)
{
	(void)signal;
	_exit(7);
}

static int hash(unsigned char digest[32])
{
	struct sockaddr_alg addr = { .salg_family = AF_ALG, .salg_type = "hash", .salg_name = "sha256" };
	int alg = socket(AF_ALG, SOCK_SEQPACKET, 0), op = -1, done = 0;

	if (alg >= 0 && bind(alg, (struct sockaddr *)&addr, sizeof addr) == 0)
		op = accept(alg, NULL, NULL);
	if (op >= 0)
		done = send(op, "abc", 3, 0) == 3 && read(op, digest, 32) == 32;
	int why = errno;
	close(op);
	close(alg);
	return done ? 0 : why;
}

int main(int argc, char **argv)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(80), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1, background = argc == 4 && !strcmp(argv[1], "-d");
	char word[32] = "", line[128];
	FILE *file;

	if (argc != (background ? 4 : 2))
		return 2;
	signal(SIGHUP, hangup);
	signal(SIGTERM, terminate);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 16)) {
		perror("digestd");
		return 1;
	}
	if (background) {
		if (daemon(0, 0) || !(file = fopen(argv[2], "w")))
			return 1;
		fprintf(file, "%d\n", getpid());
		fclose(file);
	}
	for (;;) {
		unsigned char digest[32];
		int sock = accept(listener, NULL, NULL), errnum, len;

		if (sock < 0)
			continue;
		if (again) {
			again = 0;
			if (!(file = fopen(argv[argc - 1], "r")) || fscanf(file, "%31s", word) != 1)
				return 1;
			fclose(file);
		}
		errnum = hash(digest);
		len = snprintf(line, sizeof line, "%s ", word);
		if (errnum)
			len += snprintf(line + len, sizeof line - len, "errno %d", errnum);
		for (int i = 0; !errnum && i < 32; i++)
			len += snprintf(line + len, sizeof line - len, "%02x", digest[i]);
		line[len++] = '\n';
		if (write(sock, line, len) != len)
			perror("digestd");
		close(sock);
	}
}
