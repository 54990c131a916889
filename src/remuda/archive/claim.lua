-- Gives the next job to a pipeline in one step: from its queue to `working`, with its start, its pipeline and a lease.
-- A job whose frontier is on another machine's disk is left to that for a while. What other software has queued gets
-- a record of its run.
-- KEYS[1] working
-- KEYS[2] remuda:runs
-- KEYS[3] remuda:runs:of:{account}, of what other software has queued
-- KEYS[4] remuda:jobs:open:{account}, of the same
-- KEYS[5] remuda:metering:timers
-- KEYS[6..] {queue}, the first before the others
-- ARGV[1] pipeline
-- ARGV[2] host of the pipeline
-- ARGV[3] seconds of the lease
-- ARGV[4] look, at most so many jobs of each queue
-- ARGV[5] account of what other software has queued
-- ARGV[6] job, template by ident
-- ARGV[7] lease, template by ident
-- ARGV[8] run, template by id of the run
-- ARGV[9] runs, template by ident
-- ARGV[10] timer, template by id of the run
-- ARGV[11] credentials, template by ident
-- returns the ident and the number of the run, or nothing

-- Those that read a job's record need not know that a count of none is absent.
local counters = {'bytes_downloaded', 'error_count', 'items_downloaded', 'items_queued', 'last_analyzed_log_entry',
  'last_broadcasted_log_entry', 'last_trimmed_log_entry', 'log_score', 'r1xx', 'r2xx', 'r3xx', 'r4xx', 'r5xx', 'runk'}

-- The prefix of this herd's keys is not part of a queue's name in a record.
local prefix = #KEYS[1] - #'working'

-- Puts the user and password that other software has left in the URL of a job where only its pipeline looks.
local function take_credentials(ident, job, record)
  local key = string.format(ARGV[11], ident)
  redis.call('DEL', key)
  for _, field in ipairs({'url', 'url_file'}) do
    local url = redis.call('HGET', job, field) or ''
    local scheme, server, rest = url:match('^%s*(%a+:[/\\]+)[^/\\?#]*@([^/\\?#]*)(.*)$')
    if scheme then
      redis.call('RPUSH', key, url)
      redis.call('HSET', job, field, scheme .. server .. rest)
      redis.call('HSET', record, 'servers', cjson.encode({scheme .. server}))
    end
  end
end

local function record_of(ident, job, queue)
  local number = redis.call('HGET', job, 'run')
  if not number then
    local runs = string.format(ARGV[9], ident)
    number = tostring((tonumber(redis.call('ZRANGE', runs, -1, -1)[1]) or 0) + 1)
    local run = ident .. '-' .. number
    take_credentials(ident, job, string.format(ARGV[8], run))
    local known = redis.call('HMGET', job, 'url', 'fetch_depth', 'queued_at', 'note')
    redis.call('HSET', job, 'run', number)
    redis.call('HSET', string.format(ARGV[8], run), 'ident', ident, 'number', number, 'account', ARGV[5],
      'url', known[1], 'depth', known[2] or 'inf', 'queuedAt', known[3] or now, 'note', known[4] or '',
      'queue', queue:sub(prefix + 1))
    redis.call('ZADD', runs, number, number)
    redis.call('ZADD', KEYS[2], now, run)
    redis.call('ZADD', KEYS[3], now, run)
    redis.call('SADD', KEYS[4], ident)
  end
  return number, string.format(ARGV[8], ident .. '-' .. number)
end

local function is_for_us(record)
  local host, until_then = unpack(redis.call('HMGET', record, 'host', 'hostUntil'))
  return not host or host == ARGV[2] or (tonumber(until_then) or 0) <= tonumber(now)
end

for index = 6, #KEYS do
  local queue = KEYS[index]
  local waiting = redis.call('LRANGE', queue, -tonumber(ARGV[4]), -1)
  for place = #waiting, 1, -1 do
    local ident = waiting[place]
    local job = string.format(ARGV[6], ident)
    if #ident < 20 or ident:find('[^a-z0-9]') or state_of(job) ~= 'queued' then
      -- Nothing that can be run: its record has expired, or another pipeline of other software has it.
      redis.call('LREM', queue, -1, ident)
    elseif #ident >= 25 then -- The original does not pad its own: a shorter one is left to its pipelines.
      local number, record = record_of(ident, job, queue)
      if is_for_us(record) then
        redis.call('LREM', queue, -1, ident)
        redis.call('LPUSH', KEYS[1], ident)
        redis.call('HSET', job, 'started_at', now, 'pipeline_id', ARGV[1])
        for _, field in ipairs(counters) do
          redis.call('HSETNX', job, field, 0)
        end
        redis.call('HDEL', job, 'heartbeat', 'last_acknowledged_heartbeat', 'death_timer')
        redis.call('HSET', record, 'state', 'running', 'pipeline', ARGV[1])
        if redis.call('HSETNX', record, 'startedAt', now) == 1 then
          local run, began = ident .. '-' .. number, string.format('%.0f', tonumber(now) * 1000)
          redis.call('HSET', string.format(ARGV[10], run), 'service', 'archive', 'began', began,
            'account', redis.call('HGET', record, 'account') or '')
          redis.call('ZADD', KEYS[5], began, run)
        end
        redis.call('SET', string.format(ARGV[7], ident), ARGV[1], 'EX', ARGV[3])
        return {ident, number}
      end
    end
  end
end
return {}
