-- Says that a worker is here and what it does: its registration if Redis does not know it (any more), else a beat.
-- ARGV[1] worker
-- ARGV[2] endpoint
-- ARGV[3] version, `any` if the worker does not tell
-- ARGV[4] status
-- ARGV[5] seconds until it is taken for dead
-- ARGV[6] newcomer, 1 if it has just started, else empty
-- ARGV[7] since, when it started, in Unix milliseconds
-- ARGV[8] obstacle, why it takes no connections for now, else empty
-- returns the command that waits for it (nil: none), 1 if it had to be registered, how many connections its counter
-- shows, and how many of them have a lease

local worker, endpoint, version, status, seconds = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local key, name = key_of(worker), field(worker)
local is_new = call('ZADD', WORKERS, now + seconds, worker) == 1
local is_unknown = is_new or call('HGET', key, 'wsEndpoint') ~= endpoint
  or call('HGET', VERSIONS, worker) ~= version

if is_unknown then
  -- The original's proxy takes an entry without `id` for none, and has counted by then.
  call('HSET', key, 'id', worker, 'browserType', own_browser, 'wsEndpoint', endpoint, 'endpoint', endpoint,
    'status', status, 'startedAt', ARGV[7], 'lastHeartbeat', this_second)
  call('EXPIRE', key, seconds)
  call('HSET', VERSIONS, worker, version)
else
  call('HSET', key, 'lastHeartbeat', this_second)
  call('EXPIRE', key, seconds)
end
-- The document writes 0 when a worker registers. Connections that have outlived the loss of the key are not
-- forgotten; and others write these counters too, below zero or not at all.
local leased = call('ZCARD', connections_of(worker))
local shown = math.max(leased, tonumber(call('HGET', ACTIVE, name) or 0))
call('HSET', ACTIVE, name, shown)
call('HSET', LIFETIME, name, math.max(leased, lifetime_of(worker)))
call('ZADD', OFFERS, 'GT', now + seconds, version)

-- A beat shows that a worker lives, not that gateways reach it: who has failed again after one stays suspected
-- until the time is over, unless it has moved.
if is_unknown then call('HDEL', FAILURES, worker) end
local has_failed_again = tonumber(call('HGET', FAILURES, worker) or 0) > 1
local is_cleared = not (has_failed_again and is_in(SUSPECTS, worker)) and call('ZREM', SUSPECTS, worker) == 1
local obstacle = ARGV[8]
local is_freed = obstacle == '' and call('HDEL', OBSTACLES, worker) == 1
if (is_unknown or is_cleared) and ARGV[6] == '1' then fill_vacancy() end
if status == 'draining' then
  call('HSET', key, 'status', status)
  begin_to_leave(worker, seconds)
  file(worker)
elseif obstacle ~= '' then
  -- Foreign proxies pass over one that drains. This one comes back, so no new worker is waited for.
  call('HSET', key, 'status', 'draining')
  call('HSET', OBSTACLES, worker, obstacle)
  file(worker)
elseif is_unknown or is_cleared or is_freed then
  if is_freed then call('HSET', key, 'status', status) end
  file(worker)
  ring()
end
return {call('GET', string.format(KEYS[15], worker)), is_unknown and 1 or 0, shown, leased}
