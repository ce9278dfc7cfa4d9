/* The answer table's hits in C: epoll_wait that answers UDP queries from the table before it returns.
 *
 * It does what UdpListener does with a packet whose answer is in the table, byte by byte and count by count, and hands
 * everything else up: packets that the table does not answer, events of other descriptors, the end of the timeout. One
 * thread calls it; the interpreter's lock is released while it waits. Queries are received and answers sent in batches.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

enum {
    BATCH = 64,
    PACKET_MAX = 4096,
    EVENTS_MAX = 256,
    HEADER = 12,
    ID = 2,
    HEAD = 10,
    QUESTION_TAIL = 4,
    OPT_HEAD = 11,
    OPT_TAIL = 15,
    MAX_LABEL = 63,
    MAX_NAME = 255,
    COOKIE = 10,
    PADDING = 12
};

typedef struct {
    unsigned char packets[BATCH][PACKET_MAX];
    struct sockaddr_storage clients[BATCH];
    struct iovec received[BATCH], sent[BATCH][2];
    struct mmsghdr queries[BATCH], answers[BATCH];
    PyObject *bodies[BATCH];
    PyObject *requests; /* of the listener whose last bursts have not been counted */
    Py_ssize_t hits;
    double took_s;
    PyObject *sampling; /* of the listener whose burst is read, and its numbers */
    Py_ssize_t most, seen;
} Buffers;

static Buffers *spare;
static const double SHORT_S = 0.00025; /* the first of DURATION_BUCKETS_S: shorter bursts are counted together */
static uint64_t chance;              /* of xorshift64; never 0 */
static PyObject *s_answers, *s_bodies, *s_head, *s_hits, *s_keep, *s_most, *s_observe, *s_question_end, *s_renew, *s_seen, *s_unsent, *s_until_s;

static double monotonic_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The number of an attribute; -1 with an exception. Numbers of answers are not negative, and can be added to. */
static Py_ssize_t number_of(PyObject *object, PyObject *name) {
    PyObject *value = PyObject_GetAttr(object, name);
    Py_ssize_t number = value ? PyLong_AsSsize_t(value) : -1;
    Py_XDECREF(value);
    if (number >= 0 && number <= PY_SSIZE_T_MAX / 2) return number;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%U is out of range", name);
    return -1;
}

static int add_to(PyObject *object, PyObject *name, Py_ssize_t more) {
    Py_ssize_t before = number_of(object, name);
    PyObject *value = before < 0 ? NULL : PyLong_FromSsize_t(before + more);
    int failed = !value || PyObject_SetAttr(object, name, value) < 0;
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

/* The end of the OPT's head if nothing else is behind the question, and its options are all hop by hop; otherwise 0. */
static Py_ssize_t hop_by_hop_opt(const unsigned char *packet, Py_ssize_t size) {
    static const unsigned char counts[] = {0, 1, 0, 0, 0, 0, 0, 1}, root_opt[] = {0, 0, 41};
    Py_ssize_t at = HEADER;
    if (memcmp(packet + HEADER - sizeof counts, counts, sizeof counts)) return 0;
    while (at < size && packet[at]) {
        if (packet[at] > MAX_LABEL) return 0;
        at += 1 + packet[at];
    }
    Py_ssize_t opt = at + 1 + 4, end = opt + OPT_HEAD;
    if (at - HEADER >= MAX_NAME || end > size || memcmp(packet + opt, root_opt, sizeof root_opt)) return 0;
    if ((packet[end - 2] << 8 | packet[end - 1]) != size - end) return 0;
    for (at = end; at < size; at += 4 + (packet[at + 2] << 8 | packet[at + 3]))
        if (size - at < 4 || packet[at] || packet[at + 1] < COOKIE || packet[at + 1] > PADDING) return 0;
    return at == size ? end : 0;
}

/* As packet_key: what follows the id, with the letters of the name in lower case; empty for what is in no table. */
static PyObject *key_of(const unsigned char *packet, Py_ssize_t size) {
    if (packet[HEADER - 1] && (packet[size - 1] || packet[size - 2]))
        if (!(size = hop_by_hop_opt(packet, size))) return PyBytes_FromStringAndSize("", 0);
    PyObject *key = PyBytes_FromStringAndSize((const char *)packet + ID, size - ID);
    if (!key) return NULL;
    unsigned char *bytes = (unsigned char *)PyBytes_AsString(key);
    Py_ssize_t end = size - (packet[HEADER - 1] ? OPT_TAIL : QUESTION_TAIL) - ID;
    for (Py_ssize_t i = 0; i < end; i++)
        if (bytes[i] >= 'A' && bytes[i] <= 'Z') bytes[i] |= 0x20;
    return key;
}

/* As socket.recvfrom has it. */
static PyObject *address_of(const struct sockaddr_storage *client) {
    char text[INET6_ADDRSTRLEN] = "";
    if (client->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)client;
        inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        return Py_BuildValue("(si)", text, ntohs(in->sin_port));
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)client;
    inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
    return Py_BuildValue("(siII)", text, ntohs(in6->sin6_port), ntohl(in6->sin6_flowinfo), in6->sin6_scope_id);
}

/* Whether an answer may be used now; -1 with an exception. */
static int is_valid(PyObject *answer, double now_s) {
    PyObject *until = PyObject_GetAttr(answer, s_until_s);
    double until_s = until ? PyFloat_AsDouble(until) : -1;
    Py_XDECREF(until);
    if (PyErr_Occurred()) return -1;
    if (until_s > now_s) return 1;
    PyObject *now = PyFloat_FromDouble(now_s);
    PyObject *renewed = now ? PyObject_CallMethodObjArgs(answer, s_renew, now, NULL) : NULL;
    int valid = renewed ? PyObject_IsTrue(renewed) : -1;
    Py_XDECREF(now);
    Py_XDECREF(renewed);
    return valid;
}

/* As Answer.wire: counts the answer, and writes it around the packet's id and question. */
static int write_answer(Buffers *b, PyObject *answer, int query, Py_ssize_t size, int out) {
    Py_ssize_t hits = number_of(answer, s_hits), question_end = number_of(answer, s_question_end), which, count,
               body_size;
    PyObject *value, *body = NULL, *head = NULL, *bodies = NULL;
    char *bytes;
    int failed = -1;
    if (hits < 0 || question_end < 0 || !(value = PyLong_FromSsize_t(++hits))) return -1;
    if (PyObject_SetAttr(answer, s_hits, value) == 0 && (bodies = PyObject_GetAttr(answer, s_bodies))) {
        if ((count = PySequence_Size(bodies)) > 0) {
            which = hits % count;
            body = PySequence_GetItem(bodies, which);
        } else if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "an answer has no body");
    }
    head = body ? PyObject_GetAttr(answer, s_head) : NULL;
    if (head && PyBytes_Check(head) && PyBytes_Size(head) == HEAD && PyBytes_Check(body) && question_end <= size) {
        memcpy(b->packets[query] + ID, PyBytes_AsString(head), HEAD);
        PyBytes_AsStringAndSize(body, &bytes, &body_size);
        b->sent[out][0] = (struct iovec){b->packets[query], (size_t)question_end};
        b->sent[out][1] = (struct iovec){bytes, (size_t)body_size};
        b->answers[out].msg_hdr = (struct msghdr){.msg_name = &b->clients[query],
                                                  .msg_namelen = b->queries[query].msg_hdr.msg_namelen,
                                                  .msg_iov = b->sent[out],
                                                  .msg_iovlen = 2};
        b->bodies[out] = body;
        body = NULL;
        failed = 0;
    } else if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "an answer that fits no packet");
    Py_DECREF(value);
    Py_XDECREF(body);
    Py_XDECREF(head);
    Py_XDECREF(bodies);
    return failed;
}

static int add_miss(PyObject *misses, const unsigned char *packet, Py_ssize_t size, PyObject *key,
                    const struct sockaddr_storage *client, double now_s) {
    PyObject *address = address_of(client);
    PyObject *miss = address ? Py_BuildValue("(y#ONd)", packet, size, key, address, now_s) : NULL;
    int failed = !miss || PyList_Append(misses, miss) < 0;
    Py_XDECREF(miss);
    return failed ? -1 : 0;
}

/* As Sampling: whether the next answered query is in the sample. */
static int is_drawn(Buffers *b) {
    if (!b->most || b->seen++ < b->most) return b->most > 0;
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance % (uint64_t)b->seen < (uint64_t)b->most;
}

/* Hands a drawn query over, whose buffer has the head of the answer; -1 with an exception. */
static int keep(Buffers *b, PyObject *packet, int query) {
    PyObject *address = address_of(&b->clients[query]), *host = address ? PyTuple_GetItem(address, 0) : NULL;
    PyObject *head = host ? PyBytes_FromStringAndSize((const char *)b->packets[query], ID + 2) : NULL;
    PyObject *done = head ? PyObject_CallMethodObjArgs(b->sampling, s_keep, packet, host, head, NULL) : NULL;
    Py_XDECREF(address);
    Py_XDECREF(head);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Writes an answer, and samples its query; -1 with an exception. */
static int answer_query(Buffers *b, PyObject *answer, int query, Py_ssize_t size, int out) {
    PyObject *packet = is_drawn(b) ? PyBytes_FromStringAndSize((const char *)b->packets[query], size) : NULL;
    int failed = PyErr_Occurred() || write_answer(b, answer, query, size, out) < 0 ? -1 : 0;
    if (!failed && packet && (failed = keep(b, packet, query)) < 0) Py_DECREF(b->bodies[out]);
    Py_XDECREF(packet);
    return failed;
}

/* Answers one received packet, or appends it to the misses: 1, 0, or -1 with an exception. */
static int take(Buffers *b, PyObject *answers, PyObject *misses, int query, int out, double now_s) {
    Py_ssize_t size = b->queries[query].msg_len;
    PyObject *key = size > HEADER ? key_of(b->packets[query], size) : PyBytes_FromStringAndSize("", 0);
    PyObject *answer = key && size > HEADER ? PyDict_GetItemWithError(answers, key) : NULL;
    Py_XINCREF(answer);
    int result = !key || PyErr_Occurred() ? -1 : answer ? is_valid(answer, now_s) : 0;
    if (result == 1) result = answer_query(b, answer, query, size, out) < 0 ? -1 : 1;
    else if (result == 0 && add_miss(misses, b->packets[query], size, key, &b->clients[query], now_s) < 0) result = -1;
    Py_XDECREF(answer);
    Py_XDECREF(key);
    return result;
}

/* Sends answers; returns how many the kernel did not take. */
static Py_ssize_t send_answers(int fd, Buffers *b, int out) {
    Py_ssize_t unsent = 0;
    for (int done = 0; done < out;) {
        int sent = sendmmsg(fd, b->answers + done, (unsigned)(out - done), MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) unsent++;
        done += sent < 0 ? 1 : sent;
    }
    for (int i = 0; i < out; i++) Py_DECREF(b->bodies[i]);
    return unsent;
}

/* Counts the bursts of one listener that have not been counted; -1 with an exception. */
static int count_bursts(Buffers *b) {
    PyObject *requests = b->requests, *done = NULL;
    if (!requests) return 0;
    PyObject *count = PyLong_FromSsize_t(b->hits), *took = PyFloat_FromDouble(b->took_s);
    b->requests = NULL;
    if (count && took) done = PyObject_CallMethodObjArgs(requests, s_observe, count, took, NULL);
    Py_XDECREF(count);
    Py_XDECREF(took);
    Py_XDECREF(done);
    Py_DECREF(requests);
    return done ? 0 : -1;
}

/* Adds a burst to those that are to be counted; a long one is counted by itself, for its own bucket. */
static int add_burst(Buffers *b, PyObject *requests, Py_ssize_t hits, double took_s) {
    int is_short = took_s < SHORT_S * (double)hits;
    if ((b->requests != requests || !is_short) && count_bursts(b) < 0) return -1;
    if (!b->requests) {
        Py_INCREF(requests);
        b->requests = requests;
        b->hits = 0;
        b->took_s = 0;
    }
    b->hits += hits;
    b->took_s += took_s;
    return is_short ? 0 : count_bursts(b);
}

/* Takes up to `most` packets of a socket, given as (partition, requests, misses, sampling); -1 with an exception. */
static int burst(Buffers *b, int fd, PyObject *listener, long most) {
    PyObject *partition = PyTuple_GetItem(listener, 0), *requests = PyTuple_GetItem(listener, 1),
             *misses = PyTuple_GetItem(listener, 2);
    b->sampling = PyTuple_GetItem(listener, 3);
    b->most = b->sampling ? number_of(b->sampling, s_most) : -1;
    b->seen = b->most > 0 ? number_of(b->sampling, s_seen) : 0;
    if (b->most < 0 || b->seen < 0) return -1;
    PyObject *answers = partition && requests && misses ? PyObject_GetAttr(partition, s_answers) : NULL;
    double began_s = monotonic_s();
    Py_ssize_t hits = 0, unsent = 0;
    int result = answers && PyDict_Check(answers) && PyList_Check(misses) ? 0 : -1;
    if (result < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected a dict of answers, and a list");
    for (long seen = 0; result == 0 && seen < most;) {
        for (int i = 0; i < BATCH; i++) b->queries[i].msg_hdr.msg_namelen = sizeof b->clients[i];
        int got = recvmmsg(fd, b->queries, BATCH, MSG_DONTWAIT, NULL), out = 0;
        if (got < 0 && (errno == EAGAIN || errno == EBADF || errno == ENOTSOCK)) break;
        seen += got > 0 ? got : 1;
        for (int i = 0; i < got && result == 0; i++) {
            int taken = take(b, answers, misses, i, out, began_s);
            if (taken < 0) result = -1;
            else out += taken;
        }
        hits += out;
        unsent += send_answers(fd, b, out);
        if (got >= 0 && got < BATCH) break;
    }
    Py_XDECREF(answers);
    PyObject *seen = result == 0 && b->most ? PyLong_FromSsize_t(b->seen) : NULL;
    if (result == 0 && b->most && (!seen || PyObject_SetAttr(b->sampling, s_seen, seen) < 0)) result = -1;
    Py_XDECREF(seen);
    if (result == 0 && unsent) result = add_to(requests, s_unsent, unsent);
    return result == 0 && hits ? add_burst(b, requests, hits, monotonic_s() - began_s) : result;
}

static int add_event(PyObject *events, int fd, unsigned flags) {
    PyObject *event = Py_BuildValue("(iI)", fd, flags);
    int failed = !event || PyList_Append(events, event) < 0;
    Py_XDECREF(event);
    return failed ? -1 : 0;
}

/* Handles what epoll_wait told: bursts of listeners, other events for the caller; -1 with an exception. */
static int dispatch(Buffers *b, PyObject *listeners, const struct epoll_event *told, int count, PyObject *events,
                    long most) {
    for (int i = 0; i < count; i++) {
        PyObject *fd = PyLong_FromLong(told[i].data.fd), *listener = fd ? PyDict_GetItemWithError(listeners, fd) : NULL;
        Py_XDECREF(fd);
        if (PyErr_Occurred()) return -1;
        if (listener) {
            Py_INCREF(listener);
            int failed = burst(b, told[i].data.fd, listener, most);
            PyObject *misses = failed ? NULL : PyTuple_GetItem(listener, 2);
            Py_ssize_t missed = misses ? PyList_Size(misses) : -1;
            Py_DECREF(listener);
            if (missed < 0) return -1;
            if (!missed) continue;
        }
        if (add_event(events, told[i].data.fd, told[i].events) < 0) return -1;
    }
    return 0;
}

static Buffers *new_buffers(void) {
    Buffers *b = PyMem_Calloc(1, sizeof *b);
    if (!b) return (Buffers *)PyErr_NoMemory();
    for (int i = 0; i < BATCH; i++) {
        b->received[i] = (struct iovec){b->packets[i], PACKET_MAX};
        b->queries[i].msg_hdr =
            (struct msghdr){.msg_name = &b->clients[i], .msg_iov = &b->received[i], .msg_iovlen = 1};
    }
    return b;
}

PyDoc_STRVAR(wait_doc, "wait(epoll_fd, timeout_s, listeners, most) -> [(fd, events), ...]\n\nEvents of epoll_wait(2), "
                       "without those of listeners whose packets were all answered.\nA timeout below 0 is none. "
                       "`listeners`: fd -> (partition, requests, misses, sampling).");

static PyObject *wait_(PyObject *module, PyObject *arguments) {
    (void)module;
    int epoll_fd;
    double timeout_s;
    long most;
    PyObject *listeners;
    if (!PyArg_ParseTuple(arguments, "idO!l", &epoll_fd, &timeout_s, &PyDict_Type, &listeners, &most)) return NULL;
    Buffers *b = spare ? spare : new_buffers();
    spare = NULL;
    PyObject *events = b ? PyList_New(0) : NULL;
    double end_s = timeout_s < 0 ? -1 : monotonic_s() + timeout_s, left_s = timeout_s;
    struct epoll_event told[EVENTS_MAX];
    int failed = events ? 0 : -1;
    while (!failed) {
        int got, milliseconds = timeout_s < 0   ? -1
                                : left_s > 3600 ? 3600000
                                : left_s > 0    ? (int)(left_s * 1e3 + 0.999)
                                                : 0;
        Py_BEGIN_ALLOW_THREADS got = epoll_wait(epoll_fd, told, EVENTS_MAX, milliseconds);
        Py_END_ALLOW_THREADS if (got < 0 && errno != EINTR) failed = -1, PyErr_SetFromErrno(PyExc_OSError);
        else if (got < 0) failed = PyErr_CheckSignals(); else failed = dispatch(b, listeners, told, got, events, most);
        if (failed || PyList_Size(events)) break;
        if (timeout_s >= 0 && (left_s = end_s - monotonic_s()) <= 0) break;
    }
    if (b) { /* so the counters are exact whenever Python runs */
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        int uncounted = count_bursts(b);
        if (!type) failed |= uncounted;
        else {
            PyErr_Clear();
            PyErr_Restore(type, value, traceback);
        }
    }
    if (spare) PyMem_Free(b);
    else spare = b;
    if (failed) Py_CLEAR(events);
    return events;
}

static PyMethodDef methods[] = {{"wait", wait_, METH_VARARGS, wait_doc}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_burst", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__burst(void) {
    struct {
        PyObject **name;
        const char *text;
    } names[] = {{&s_answers, "answers"}, {&s_bodies, "bodies"},   {&s_head, "head"},
                 {&s_hits, "hits"},       {&s_keep, "keep"},       {&s_most, "most"},
                 {&s_observe, "observe"}, {&s_question_end, "question_end"},
                 {&s_renew, "renew"},     {&s_seen, "seen"},       {&s_unsent, "unsent"},
                 {&s_until_s, "until_s"}};
    chance = (uint64_t)(monotonic_s() * 1e9) | 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*names[i].name = PyUnicode_InternFromString(names[i].text))) return NULL;
    return PyModule_Create(&definition);
}
