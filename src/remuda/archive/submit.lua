-- Queues a new run of a job: the record of an earlier run makes room for it. Refused while the job waits or runs, and
-- when the account has as many jobs as it may have.
-- KEYS[1] {ident}
-- KEYS[2] {ident}_ignores
-- KEYS[3] {ident}_log
-- KEYS[4] {queue}, where the job is to wait
-- KEYS[5] remuda:runs:{ident}
-- KEYS[6] remuda:runs
-- KEYS[7] remuda:runs:of:{account}
-- KEYS[8] remuda:jobs:open:{account}
-- KEYS[9] remuda:jobs:tags
-- KEYS[10] remuda:credentials:{ident}
-- ARGV[1] ident
-- ARGV[2] origins, states after which a new run may begin, each between commas
-- ARGV[3] most, jobs that the account may have at a time; 0: any number
-- ARGV[4] run, template by id of the run
-- ARGV[5] tag of the pipelines that may take it; '' for any
-- ARGV[6] bell to ring
-- ARGV[7] job, its fields as JSON
-- ARGV[8] record, the fields of the run's record as JSON
-- ARGV[9] ignores, as a JSON list
-- ARGV[10] logins, URLs with users and passwords as a JSON list
-- returns the number of the run; or 0 and the state that forbids it, or 0 and 'limit'

local job, most = KEYS[1], tonumber(ARGV[3])
local state = state_of(job)
if state ~= '' and not ARGV[2]:find(',' .. state .. ',', 1, true) then
  return {0, state}
end
if most > 0 and redis.call('SCARD', KEYS[8]) >= most then
  return {0, 'limit'}
end

local last = redis.call('ZRANGE', KEYS[5], -1, -1)[1]
local number = (tonumber(last) or 0) + 1
local run = ARGV[1] .. '-' .. number
redis.call('DEL', job, KEYS[2], KEYS[3], KEYS[10])
for field, value in pairs(cjson.decode(ARGV[7])) do
  redis.call('HSET', job, field, value)
end
redis.call('HSET', job, 'run', number, 'queued_at', now, 'settings_age', 1)
for _, pattern in ipairs(cjson.decode(ARGV[9])) do
  redis.call('SADD', KEYS[2], pattern)
end
local record = string.format(ARGV[4], run)
for field, value in pairs(cjson.decode(ARGV[8])) do
  redis.call('HSET', record, field, value)
end
redis.call('HSET', record, 'number', number, 'state', 'queued', 'queuedAt', now)
for _, login in ipairs(cjson.decode(ARGV[10])) do
  redis.call('RPUSH', KEYS[10], login)
end
redis.call('ZADD', KEYS[5], number, number)
redis.call('ZADD', KEYS[6], now, run)
redis.call('ZADD', KEYS[7], now, run)
redis.call('SADD', KEYS[8], ARGV[1])
if ARGV[5] ~= '' then
  redis.call('SADD', KEYS[9], ARGV[5])
end
redis.call('LPUSH', KEYS[4], ARGV[1])
redis.call('PUBLISH', ARGV[6], '')
return {number, ''}
