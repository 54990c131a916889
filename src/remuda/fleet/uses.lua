-- What an account uses; the only writer of its books. Before it does what it is asked, those fall out whose lease has
-- run out. When the account has got a browser or has lost one, its turn changes in the lines in which it waits.
-- KEYS[1] remuda:uses:{account}
-- KEYS[2] remuda:held:{account}
-- KEYS[3] remuda:starts:{account}
-- KEYS[4] remuda:account:{account}
-- KEYS[5] remuda:metrics:access
-- KEYS[6] remuda:quotas:{account}
-- KEYS[7] remuda:quota.use:{account}
-- ARGV[6] verb, one of take, renew and give_back
-- ARGV[7] account
-- ARGV[8] lease, in seconds
-- ARGV[9] services whose quotas count, between spaces
-- ARGV[10..] uses, each behind `held` if it has a browser, `wanted` if it waits for one
-- returns for take '' and 0, or the limit that is reached, `sessions_limit`, `rate_limit` or `quota_limit`, with its
-- number and the milliseconds after which it may be tried again, and of a quota its name, what is used, its period and
-- when that ends; for the others how many of the uses were not in the books

local uses, held, starts = KEYS[1], KEYS[2], KEYS[3]
local lease = tonumber(ARGV[8])
local lease_end = integer(now_ms + lease * 1000)
local MINUTE = 60000

local function change_turns()
  local account = ARGV[7]
  local waits = string.format(ARGV[4], account)
  local waiting = redis.call('ZRANGEBYSCORE', waits, integer(now), '+inf', 'LIMIT', 0, MOST_LINES)
  local browsers = redis.call('ZCARD', held)
  for _, line in ipairs(waiting) do
    if redis.call('ZSCORE', string.format(ARGV[1], line), account) then
      local first = head(line)
      set_turn(line, account, browsers)
      call_head(line, first)
    end
  end
end

local function keep(use, kind)
  local is_new = redis.call('ZADD', uses, lease_end, use)
  local has_changed = kind == 'held' and redis.call('ZADD', held, lease_end, use) == 1
  return is_new, has_changed
end

local function refuse(limit, number, milliseconds)
  redis.call('HINCRBY', KEYS[5], limit, 1)
  return {limit, number, milliseconds}
end

-- The first quota that is used up.
local function spent_quota()
  local quotas = redis.call('HGETALL', KEYS[6])
  for index = 1, #quotas, 2 do
    local name = quotas[index]
    local hard, period = quotas[index + 1]:match('^(%S+) %S+ (%S+)$')
    local is_ours = ARGV[9]:find(' ' .. name:match('^[^.]*') .. ' ', 1, true)
    if is_ours and tonumber(hard) then
      local use = redis.call('HMGET', KEYS[7], name, name .. '.until')
      local used, ends = tonumber(use[1] or 0), tonumber(use[2] or 0)
      if used >= tonumber(hard) and (period == 'now' or ends > now_ms) then
        return name, hard, used, period, ends
      end
    end
  end
end

local verbs = {}

function verbs.take()
  local use = ARGV[11]
  -- Taken just when Redis went away, so that it could not say so.
  if redis.call('ZSCORE', uses, use) then return {'', 0, 0} end
  local quota, hard, used, period, ends = spent_quota()
  if quota then
    local refusal = refuse('quota_limit', tonumber(hard), math.max(0, ends - now_ms))
    refusal[4], refusal[5], refusal[6], refusal[7] = quota, used, period, ends
    return refusal
  end
  local limits = redis.call('HMGET', KEYS[4], 'sessions', 'rate')
  local most, rate = tonumber(limits[1]), tonumber(limits[2])
  if most and redis.call('ZCARD', uses) >= most then
    return refuse('sessions_limit', redis.call('ZCARD', uses), 0)
  end
  if rate then
    redis.call('ZREMRANGEBYSCORE', starts, '-inf', now_ms - MINUTE)
    local count = redis.call('ZCARD', starts)
    if count >= rate then
      -- Once this one has left the window, there are fewer than the rate in it.
      local leaves = redis.call('ZRANGE', starts, count - rate, count - rate, 'WITHSCORES')[2] or now_ms
      return refuse('rate_limit', rate, leaves + MINUTE - now_ms)
    end
    redis.call('ZADD', starts, now_ms, use)
    redis.call('PEXPIRE', starts, MINUTE)
  end
  keep(use, ARGV[10])
  return {'', 0, 0}, false
end

function verbs.renew()
  local missing, has_changed = 0, false
  for index = 10, #ARGV, 2 do
    local is_new, is_change = keep(ARGV[index + 1], ARGV[index])
    missing = missing + is_new
    has_changed = has_changed or is_change
  end
  return missing, has_changed
end

function verbs.give_back()
  local missing, has_changed = 0, false
  for index = 11, #ARGV, 2 do
    missing = missing + 1 - redis.call('ZREM', uses, ARGV[index])
    has_changed = redis.call('ZREM', held, ARGV[index]) == 1 or has_changed
  end
  return missing, has_changed
end

redis.call('ZREMRANGEBYSCORE', uses, '-inf', now_ms)
local have_expired = redis.call('ZREMRANGEBYSCORE', held, '-inf', now_ms) > 0
local answer, has_changed = verbs[ARGV[6]]()
for _, key in ipairs({uses, held}) do
  redis.call('PEXPIRE', key, integer(2 * lease * 1000))
end
if has_changed or have_expired then
  change_turns()
end
return answer
